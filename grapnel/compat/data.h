/// Namespace torch::data: datasets, transforms, samplers, and loaders of batches.
///
///   auto data = torch::data::datasets::MNIST("data").map(transforms::Normalize<>(0.1307, 0.3081))
///                   .map(transforms::Stack<>());
///   auto loader = torch::data::make_data_loader(std::move(data), 64);
///   for (auto& batch : *loader) train(batch.data, batch.target);
#pragma once

#include "grapnel/compat/data/datasets.h"
#include "grapnel/compat/data/example.h"
#include "grapnel/compat/data/loader.h"
#include "grapnel/compat/data/samplers.h"
#include "grapnel/compat/data/transforms.h"
