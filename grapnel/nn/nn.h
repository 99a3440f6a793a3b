/// Everything in nn/: modules, layers and their hooks. Start reading at module.h.
#pragma once

#include "grapnel/nn/activation.h"
#include "grapnel/nn/any_module.h"
#include "grapnel/nn/call.h"
#include "grapnel/nn/init.h"
#include "grapnel/nn/linear.h"
#include "grapnel/nn/module.h"
#include "grapnel/nn/module_holder.h"
#include "grapnel/nn/module_hooks.h"
#include "grapnel/nn/sequential.h"
