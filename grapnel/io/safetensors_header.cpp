#include "grapnel/io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "grapnel/io/array_bytes.h"

namespace grapnel::io {

namespace {

using nlohmann::json;

/// Reads the header event by event. What does not belong there ends the reading at once, so that
/// neither depth nor size of a made-up header can cost more than its own bytes.
class HeaderReader final : public json::json_sax_t {
 public:
  explicit HeaderReader(const std::string& source) : source_(source) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    switch (state_) {
      case State::start: return to(State::names);
      case State::names:
        if (key_ == "__metadata__") return to(State::metadata);
        check(names_.insert(key_).second, source_, ": the tensor '", key_, "' is there twice.");
        header_.entries.push_back({.name = key_, .dtype = {}, .shape = {}});
        seen_ = {};
        return to(State::entry);
      default: unexpected("an object");
    }
  }
  bool key(string_t& text) override {
    key_ = text;
    return true;
  }
  bool end_object() override {
    if (state_ == State::entry)
      for (const char* part : {"dtype", "shape", "data_offsets"})
        check(seen_.contains(part), source_, ": the tensor '", header_.entries.back().name,
              "' has no ", part, ".");
    return to(state_ == State::names ? State::done : State::names);
  }
  bool start_array(size_t) override {
    if (state_ != State::entry) unexpected("a list");
    mark();
    numbers_.clear();
    return to(key_ == "shape"          ? State::shape
              : key_ == "data_offsets" ? State::offsets
                                       : unexpected("a list"));
  }
  bool end_array() override {
    SafetensorsEntry& e = header_.entries.back();
    if (state_ == State::offsets) {
      check(numbers_.size() == 2, source_, ": data_offsets of '", e.name,
            "' must be two numbers, got ", numbers_.size(), ".");
      e.begin = numbers_[0], e.end = numbers_[1];
    } else {
      e.shape.assign(numbers_.begin(), numbers_.end());
    }
    return to(State::entry);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::shape && state_ != State::offsets) unexpected("a number");
    check(value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), source_,
          ": the number ", value, " in '", header_.entries.back().name, "' is too large.");
    check(state_ != State::shape || numbers_.size() < kMaxRank, source_, ": the tensor '",
          header_.entries.back().name, "' has more than ", kMaxRank, " dimensions.");
    check(numbers_.size() < kMaxRank, source_, ": data_offsets of '", header_.entries.back().name,
          "' must be two numbers.");
    numbers_.push_back(value);
    return true;
  }
  bool string(string_t& text) override {
    if (state_ == State::metadata) {
      header_.metadata[key_] = text;
    } else if (state_ == State::entry && key_ == "dtype") {
      mark();
      header_.entries.back().dtype = text;
    } else {
      unexpected("text");
    }
    return true;
  }
  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction"); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const json::exception& e) override {
    const std::string_view text = e.what();
    // The library puts its own code in front: "[json.exception.parse_error.101] ".
    const size_t bracket = text.find("] ");
    fail(source_, ": the header is no JSON at byte ", position, ": ",
         bracket == text.npos ? text : text.substr(bracket + 2), ".");
  }

 private:
  enum class State { start, names, entry, shape, offsets, metadata, done };
  bool to(State next) {
    state_ = next;
    return true;
  }
  void mark() {
    check(seen_.insert(key_).second, source_, ": the tensor '", header_.entries.back().name,
          "' has ", key_, " twice.");
  }
  [[noreturn]] State unexpected(const char* what) const {
    fail(source_, ": the header has ", what, state_ == State::start ? "" : str(" at '", key_, "'"),
         ", where none belongs.");
  }

  const std::string& source_;
  State state_ = State::start;
  std::string key_;
  std::vector<uint64_t> numbers_;
  std::set<std::string> names_, seen_;
  SafetensorsHeader header_;
};

/// Bytes per element of the format's types; 0 for a type it does not have.
int element_bytes(const std::string& dtype) {
  static const auto& sizes = *new std::map<std::string, int>{
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8},     {"C64", 8}};
  const auto it = sizes.find(dtype);
  return it == sizes.end() ? 0 : it->second;
}

void check_places(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& source) {
  std::vector<const SafetensorsEntry*> order;
  for (const SafetensorsEntry& e : header.entries) {
    const int size = element_bytes(e.dtype);
    check(size > 0, source, ": the tensor '", e.name, "' has the unknown type '", e.dtype, "'.");
    const std::optional<uint64_t> counted = array_bytes(e.shape, static_cast<uint64_t>(size));
    check(counted.has_value(), source, ": the tensor '", e.name, "' of shape ",
          IntArrayRef(e.shape), " has too many elements.");
    const uint64_t bytes = *counted;
    check(e.begin <= e.end && e.end - e.begin == bytes, source, ": the tensor '", e.name,
          "' of type ", e.dtype, " and shape ", IntArrayRef(e.shape), " needs ", bytes,
          " bytes, but its place is from byte ", e.begin, " to ", e.end, ".");
    order.push_back(&e);
  }
  std::ranges::sort(order, {},
                    [](const SafetensorsEntry* e) { return std::pair(e->begin, e->end); });
  uint64_t at = 0;
  for (const SafetensorsEntry* e : order) {
    check(e->begin == at, source, ": the tensor '", e->name, "' begins at byte ", e->begin,
          ", where byte ", at, " is next: there is a gap or an overlap.");
    at = e->end;
  }
  check(at == data_bytes, source, ": the header describes ", at,
        " bytes of elements, the file has ", data_bytes, ".",
        at > data_bytes ? "\nIt was cut off; copy or download it again." : "");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           const std::string& source) {
  HeaderReader reader(source);
  json::sax_parse(text, &reader);
  SafetensorsHeader header = reader.take();
  check_places(header, data_bytes, source);
  return header;
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) out["__metadata__"] = header.metadata;
  for (const SafetensorsEntry& e : header.entries)
    out[e.name] = {{"dtype", e.dtype}, {"shape", e.shape}, {"data_offsets", {e.begin, e.end}}};
  try {
    return out.dump();
  } catch (const nlohmann::json::type_error&) {
    fail("safetensors: a name or a text of the metadata is not valid UTF-8.");
  }
}

}  // namespace grapnel::io
