/// Which sanitizer this file is compiled with. Caches of memory step aside for the address
/// sanitizer, which can only see a use after free if the memory really is freed.
#pragma once

namespace grapnel::base {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool address_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif
#else
inline constexpr bool address_sanitizer = false;
#endif

}  // namespace grapnel::base
