/// Memory straight from the system, for the allocator to keep and hand out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grapnel::base {

/// Memory aligned to 64 bytes, or null. From 2 MiB on (sizes are then whole pages) it is mapped on
/// its own, with huge pages if the system allows: touching new memory 4 KiB at a time costs more
/// than the arithmetic done on it.
[[nodiscard]] void* system_allocate(size_t bytes) noexcept;
/// Returns memory of system_allocate(bytes).
void system_deallocate(void* memory, size_t bytes) noexcept;

/// Bytes of memory and swap space of this machine.
size_t machine_memory() noexcept;

/// Bytes of the largest cache of a processor, or a usual size if the system does not tell.
int64_t last_level_cache() noexcept;

}  // namespace grapnel::base
