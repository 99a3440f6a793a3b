/// Everything in optim/. Start reading at optimizer.h.
#pragma once

#include "grapnel/optim/adam.h"
#include "grapnel/optim/optimizer.h"
#include "grapnel/optim/sgd.h"
