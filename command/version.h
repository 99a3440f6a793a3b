/// The version of the command, which is that of the library.
#pragma once

namespace command {

inline constexpr const char* version = GRAPNEL_VERSION;

}  // namespace command
