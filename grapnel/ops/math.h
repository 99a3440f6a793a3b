/// Elementary functions, written once over the scalar vocabulary of scalar.h.
#pragma once

#include "grapnel/ops/math_erf.h"
#include "grapnel/ops/math_exp.h"
#include "grapnel/ops/math_log.h"
#include "grapnel/ops/math_pow.h"
#include "grapnel/ops/math_trig.h"
