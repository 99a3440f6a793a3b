/// Grapnel: automatic differentiation whose hooks compile. The umbrella: includes and nothing else.
#pragma once

#include "grapnel/base/error.h"
