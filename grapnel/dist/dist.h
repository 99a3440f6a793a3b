/// Several ranks: groups and collectives, data-parallel training, communication hooks.
#pragma once

#include "grapnel/dist/data_parallel.h"
#include "grapnel/dist/hooks.h"
#include "grapnel/dist/init.h"
#include "grapnel/dist/join.h"
#include "grapnel/dist/local_sgd.h"
#include "grapnel/dist/micro_batches.h"
#include "grapnel/dist/power_sgd.h"
#include "grapnel/dist/process_group.h"
#include "grapnel/dist/replicas.h"
