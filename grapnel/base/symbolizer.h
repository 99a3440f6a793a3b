/// Code addresses as places of the user's program: "train.cpp:42 (train_step())".
///
/// The user's code is what is neither the library's nor the standard library's. Inlined calls are
/// looked through, so that an address in a template of the library belongs to the line that calls
/// it.
#pragma once

#include <span>
#include <string>

namespace grapnel::base {

/// The place of the call that returns to an address: the nearest line outside the library, else the
/// library's. Without debug lines "function()+0x12 in module", without symbols the address.
std::string describe_address(const void* return_address);

/// The first of the addresses, innermost first, that lies outside the library; empty if none does.
std::string describe_first_outside(std::span<const void* const> return_addresses);

/// The nearest line outside the library on this thread's stack as it is now.
std::string describe_caller();

}  // namespace grapnel::base
