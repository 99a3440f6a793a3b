/// The first line of every public op function: remembers where the user's program called it.
#pragma once

#include "grapnel/base/source_site.h"

#define GRAPNEL_CALL_SITE \
  const ::grapnel::base::CallSiteScope call_site_scope(__builtin_return_address(0))
