/// How parts of a graph are written, in its text and in messages about it.
#pragma once

#include <string>

#include "grapnel/capture/graph.h"

namespace grapnel::graph_text {

std::string of(const Scalar& number);
/// Type and sizes, and the device if it is not the CPU.
std::string of(const Graph::Value& value);
/// "dims=[0], keepdim=false"
std::string of_attrs(const capture::Calls& calls, const Graph::Instruction& instruction);

}  // namespace grapnel::graph_text
