/// A run folder: everything `grapnel train` leaves behind, and what `grapnel report` makes a page
/// of.
///
/// | file                   | holds                                                             |
/// |------------------------|-------------------------------------------------------------------|
/// | run.json               | format, version, options, data, results                           |
/// | metrics.jsonl          | one object per step: loss, learning rate, sometimes test accuracy |
/// | gradients.jsonl        | histograms of the gradients, by step and parameter                |
/// | timeline-RANK.json     | when kernels, hooks and communication ran in a few steps          |
/// | graph.dot              | the compiled step, with kernels and hooks                         |
/// | checkpoint.safetensors | what a resumed run needs                                          |
///
/// Whole files are replaced in one piece. Lines are appended; what was written after the last
/// checkpoint is cut off when the run goes on.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace command {

using Json = nlohmann::json;

class RunFolder {
 public:
  /// Grows when a reader of before would misunderstand the files.
  static constexpr int format = 1;

  /// A folder to train into. One that holds a run already is refused, unless it is resumed or
  /// overwritten.
  enum class Open : uint8_t { create, resume, overwrite };
  static RunFolder open(const std::filesystem::path& path, Open how);
  /// A folder to read. Throws if it is not a run, is damaged, or of another format.
  static RunFolder read(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file(const std::string& name) const { return path_ / name; }
  /// The content of run.json; empty for a new run.
  const Json& info() const { return info_; }
  /// Merges into run.json and writes it.
  void update(const Json& info);

  /// Objects of a file of lines. A last line that was cut short is left out: the process may have
  /// been killed while writing it.
  std::vector<Json> lines(const std::string& name) const;
  /// Keeps only lines whose "step" is at most that.
  void cut(const std::string& name, int64_t step) const;
  /// A JSON file, or null if there is none.
  Json json(const std::string& name) const;
  void write(const std::string& name, const std::string& text) const;

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  Json info_ = Json::object();
};

/// Appends objects to a file of lines. Fails when the disk is full, with the name of the file.
class LineWriter {
 public:
  explicit LineWriter(const std::filesystem::path& path);
  void write(const Json& object);
  void flush();

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace command
