/// The instruction set that this file is compiled for. Sources named *_isa.cpp are compiled once for
/// each of them (see CMakeLists.txt); only they include this.
#pragma once

#include "grapnel/math/scalar.h"

#ifndef GRAPNEL_ISA
#error "GRAPNEL_ISA names the tag of an instruction set, as CMakeLists.txt does for *_isa.cpp."
#endif

namespace grapnel::kernels {
using IsaHere = GRAPNEL_ISA;
}
