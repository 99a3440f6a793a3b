/// Elementary functions, written once over the scalar vocabulary of scalar.h.
#pragma once

#include "grapnel/ops/math_exp.h"
#include "grapnel/ops/math_trig.h"
