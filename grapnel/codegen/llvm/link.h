/// Object files to functions.
#pragma once

#include "grapnel/codegen/llvm/api.h"

namespace grapnel::codegen {

bool link_object(const char* object, size_t size, const kernels::KernelTable& table, BlockFn* fn,
                 void** handle, Sink error);
void unlink_object(void* handle);

}  // namespace grapnel::codegen
