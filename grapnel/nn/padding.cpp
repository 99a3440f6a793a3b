#include "grapnel/nn/padding.h"

namespace grapnel::nn {

void detail::print_pad(std::ostream& stream, const char* name, IntArrayRef padding) {
  stream << "grapnel::nn::" << name << "(padding=" << padding << ')';
}

}  // namespace grapnel::nn
