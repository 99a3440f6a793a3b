/// Objects on disk, one file per key. Every failure only means that an object is made anew.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace grapnel::codegen {

/// The folder for generated objects, as the environment says at the moment; empty: there is none.
std::string cache_folder();

enum class Found { yes, no, rejected };
struct Entry {
  Found found = Found::no;
  std::string object;
};
/// The object stored under `key`. Rejected: there is a file, but it is damaged, or not ours to
/// trust.
Entry read_entry(const std::string& folder, std::string_view key);

/// Stores an object, replacing what was there; whether that worked. Readers see the old file or the
/// new one, never a part.
bool write_entry(const std::string& folder, std::string_view key, std::string_view object);

/// The folder is kept below a quarter of a gigabyte, roughly; this much instead.
void set_cache_limit_for_testing(uint64_t bytes);

/// Where the entry of a key lies.
std::string entry_path(const std::string& folder, std::string_view key);

}  // namespace grapnel::codegen
