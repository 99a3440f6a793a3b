/// What the command trains on: Fashion-MNIST or a text, or generated stand-ins for them.
#pragma once

#include <filesystem>
#include <string>

#include "command/models.h"

namespace command {

/// One row per example; everything is in memory.
struct Data {
  grapnel::Tensor train_x, train_y, test_x, test_y;
  std::string source;      ///< "Fashion-MNIST"
  std::string unit;        ///< of an example: "images" or "windows"
  bool generated = false;  ///< because the real ones are not there
  ModelSizes sizes;

  int64_t train_count() const { return train_x.size(0); }
  int64_t test_count() const { return test_x.size(0); }
  /// Rows as a model takes them: images as f32 [B, 1, 28, 28] with mean near 0 and deviation near
  /// 1, text as it is.
  static grapnel::Tensor prepare(const grapnel::Tensor& rows);
};

/// Fashion-MNIST in `folder`; if none is given, where Debian's package has it, and if that is not
/// installed, ten random patterns under noise.
Data load_images(const std::filesystem::path& folder);
/// The text of a file or folder; if none is given, sentences from a small grammar.
Data load_text(const std::filesystem::path& path, int64_t block);
/// A few random rows of the right form, for drawing graphs.
Data few_rows(bool text);

}  // namespace command
