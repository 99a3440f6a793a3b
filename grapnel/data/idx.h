/// Reads IDX files, the format of MNIST and its relatives: plain or gzip-compressed, bytes only.
///
/// A file is a magic number (0, 0, element type, number of dimensions), one big-endian u32 per
/// dimension, and the elements. read_idx returns a whole and consistent array or throws an error
/// that names the file and what is wrong with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace grapnel::data {

/// The numbers of an IDX file.
struct IdxArray {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;  ///< row-major
};

/// Reads an IDX file, compressed or not.
IdxArray read_idx(const std::filesystem::path& path);

}  // namespace grapnel::data
