#include "command/run_folder.h"

#include "command/version.h"
#include "command/words.h"
#include "grapnel/base/error.h"
#include "grapnel/io/file.h"
#include "grapnel/io/json_depth.h"

namespace command {

namespace fs = std::filesystem;
using grapnel::check;
using grapnel::fail;

namespace {

/// Files of a run are small; a larger one is none.
constexpr uint64_t most_bytes = uint64_t{1} << 30;

std::string text_of(const fs::path& path) { return grapnel::io::read_text(path, most_bytes); }

Json parse(const fs::path& path) {
  const std::string text = text_of(path);
  grapnel::io::check_json_depth(text, path.string());
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    fail(path.string(), ": is damaged: ", e.what(),
         "\nA copy of the folder, or training again with --overwrite, helps.");
  }
}

void check_format(const fs::path& path, const Json& info) {
  const auto found = info.is_object() ? info.find("format") : info.end();
  check(info.is_object() && found != info.end() && found->is_number_integer(), path.string(),
        ": says nothing about its format, so it was not written by grapnel train.");
  check(*found == RunFolder::format, path.string(), ": was written by grapnel ",
        info.contains("grapnel") && info["grapnel"].is_string() ? info["grapnel"].get<std::string>()
                                                                 : "of an unknown version",
        " in format ", found->get<int64_t>(),
        "; this is grapnel ", version, ", which reads format ", RunFolder::format,
        ".\nUse that version, or train again into another folder.");
}

}  // namespace

RunFolder RunFolder::open(const fs::path& path, Open how) {
  const bool there = fs::exists(path / "run.json");
  if (there && how == Open::resume) return read(path);
  check(!there || how == Open::overwrite, path.string(),
        ": holds a run already.\n--resume goes on with it, --overwrite replaces it, and --run "
        "names another "
        "folder.");
  std::error_code problem;
  fs::create_directories(path, problem);
  check(!problem && fs::is_directory(path), path.string(), ": this folder cannot be made: ",
        problem ? problem.message() : "something else has that name", ".");
  RunFolder folder(path);
  // Only what a run leaves behind: the folder may be the home of other files.
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    if (name == "run.json" || name == "metrics.jsonl" || name == "gradients.jsonl" ||
        name == "graph.dot" || name == "checkpoint.safetensors" ||
        (name.starts_with("timeline-") && name.ends_with(".json")))
      fs::remove(entry.path());
  }
  return folder;
}

RunFolder RunFolder::read(const fs::path& path) {
  check(!fs::exists(path) || fs::is_directory(path), path.string(),
        ": is a file. A run is the folder that grapnel train --run FOLDER has made.");
  check(fs::is_directory(path), path.string(), ": there is no such folder.\ngrapnel train --run ",
        shell_quoted(path), " makes one.");
  const fs::path info = path / "run.json";
  check(fs::is_regular_file(info), path.string(),
        ": is not the folder of a run; it has no run.json.");
  RunFolder folder(path);
  folder.info_ = parse(info);
  check_format(info, folder.info_);
  return folder;
}

void RunFolder::update(const Json& info) {
  info_.merge_patch(info);
  write("run.json", info_.dump(2) + "\n");
}

std::vector<Json> RunFolder::lines(const std::string& name) const {
  std::vector<Json> out;
  if (!fs::exists(file(name))) return out;
  const std::string text = text_of(file(name));
  size_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    try {
      grapnel::io::check_json_depth(line, "a line");
      out.push_back(Json::parse(line));
      check(out.back().is_object(), "a line is no object");
    } catch (const std::exception& e) {
      fail(file(name).string(), ":", number, ": is damaged: ", e.what());
    }
    begin = end + 1;
  }
  return out;
}

void RunFolder::cut(const std::string& name, int64_t step) const {
  if (!fs::exists(file(name))) return;
  std::string kept;
  for (const Json& line : lines(name))
    if (line.value("step", int64_t{0}) <= step) kept += line.dump() + "\n";
  write(name, kept);
}

Json RunFolder::json(const std::string& name) const {
  if (!fs::exists(file(name))) return nullptr;
  return parse(file(name));
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  grapnel::io::AtomicFile out(file(name), grapnel::io::Durable::no);
  out.write(text);
  out.commit();
}

LineWriter::LineWriter(const fs::path& path) : path_(path), out_(path, std::ios::app) {
  check(out_.good(), path.string(), ": cannot be opened for writing.");
}

void LineWriter::write(const Json& object) {
  out_ << object.dump() << '\n';
  check(out_.good(), path_.string(), ": could not be written. Is the disk full?");
}

void LineWriter::flush() {
  out_.flush();
  check(out_.good(), path_.string(), ": could not be written. Is the disk full?");
}

}  // namespace command
