/// Elementary functions, written once over the scalar vocabulary of scalar.h.
#pragma once

#include "grapnel/math/erf.h"
#include "grapnel/math/exp.h"
#include "grapnel/math/log.h"
#include "grapnel/math/pow.h"
#include "grapnel/math/trig.h"
