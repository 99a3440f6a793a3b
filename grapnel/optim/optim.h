/// Everything in optim/. Start reading at optimizer.h.
#pragma once

#include "grapnel/optim/adagrad.h"
#include "grapnel/optim/adam.h"
#include "grapnel/optim/in_backward.h"
#include "grapnel/optim/lbfgs.h"
#include "grapnel/optim/lion.h"
#include "grapnel/optim/lr_scheduler.h"
#include "grapnel/optim/optimizer.h"
#include "grapnel/optim/rmsprop.h"
#include "grapnel/optim/sgd.h"
