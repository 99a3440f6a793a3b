/// A training step whose state can be told: everything it touches, value by value, in the order in
/// which it changes. A step that fails must leave what comes first as it is after a step, and the
/// rest as it was before one.
#pragma once

#include "grapnel/base/allocation_fault.h"
#include "tests/test.h"
