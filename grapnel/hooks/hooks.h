/// Ready-made hooks. Each is named, can be combined with others, and has an example in
/// docs/hook-library.md.
#pragma once

#include "grapnel/hooks/gradient.h"
#include "grapnel/hooks/logger.h"
#include "grapnel/hooks/nan_guard.h"
#include "grapnel/hooks/per_sample.h"
#include "grapnel/hooks/saved.h"
#include "grapnel/hooks/statistics.h"
