/// Code addresses as places of the user's program: "train.cpp:42 (train_step())".
///
/// The user's code is what is neither the library's nor the standard library's. Inlined calls are
/// looked through, so that an address in a template of the library belongs to the line that calls
/// it.
#pragma once

#include <string>

namespace grapnel::base {

/// The place of the call that returns to an address: the nearest line outside the library, else the
/// library's. Without debug lines "function()+0x12 in module", without symbols the address.
std::string describe_address(const void* return_address);

/// The nearest line outside the library on this thread's stack as it is now; empty if there is none.
std::string describe_caller();
/// The same for a failure; empty as well if the user's own code said so, by `check` or `fail`, and
/// not the library.
std::string describe_failure();

}  // namespace grapnel::base
