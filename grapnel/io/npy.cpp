/// The .npy format: "\x93NUMPY", version, length of the header, a Python dict as text, the
/// elements.
#include "grapnel/io/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "grapnel/functions/factories.h"
#include "grapnel/io/array_bytes.h"
#include "grapnel/io/file.h"

namespace grapnel::io {

namespace {

struct NpyType {
  DType dtype;
  const char* code;  ///< without the sign for the order of bytes
};
constexpr NpyType npy_types[] = {{kBool, "b1"},   {kUInt8, "u1"},   {kInt32, "i4"},
                                 {kInt64, "i8"},  {kFloat16, "f2"}, {kFloat32, "f4"},
                                 {kFloat64, "f8"}};

/// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;

  void run() {
    int found = 0;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") descr = quoted(), found |= 1;
      else if (key == "fortran_order") fortran = truth(), found |= 2;
      else if (key == "shape") numbers(), found |= 4;
      else fail(source_, ": the header has an entry '", key, "', which is not of this format.");
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    check(found == 7, source_, ": the header lacks descr, fortran_order or shape: ", text_);
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    check(accept(c), source_, ": the header is damaged at byte ", at_, ", where '", c,
          "' is expected: ", text_);
  }
  std::string quoted() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    check(quote == '\'' || quote == '"', source_, ": the header is damaged at byte ", at_,
          ", where a quoted text is expected: ", text_,
          "\nArrays of records and of objects cannot be read.");
    const size_t end = text_.find(quote, at_ + 1);
    check(end != text_.npos, source_, ": the header is damaged: a quote is not closed: ", text_);
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  bool truth() {
    skip();
    for (const auto& [word, value] :
         {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    fail(source_, ": the header is damaged at byte ", at_,
         ", where True or False is expected: ", text_);
  }
  void numbers() {
    expect('(');
    while (!accept(')')) {
      skip();
      int64_t n = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
      check(error == std::errc() && n >= 0, source_, ": the header is damaged at byte ", at_,
            ", where a size is expected: ", text_);
      check(shape.size() < kMaxRank, source_, ": the array has more than ", kMaxRank,
            " dimensions.");
      shape.push_back(n);
      at_ = static_cast<size_t>(end - text_.data());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

}  // namespace

Tensor parse_npy(std::span<const std::byte> bytes, const std::string& source) {
  const auto* raw = reinterpret_cast<const char*>(bytes.data());
  check(bytes.size() >= 10 && std::memcmp(raw, "\x93NUMPY", 6) == 0, source,
        ": is no .npy file: it does not begin with \\x93NUMPY.");
  const int version = raw[6];
  check(version >= 1 && version <= 3, source, ": has version ", version,
        " of the .npy format; 1 to 3 are read.");
  const size_t before = version == 1 ? 10 : 12;
  check(bytes.size() >= before, source, ": ends inside its header.");
  uint64_t length = 0;
  std::memcpy(&length, raw + 8, version == 1 ? 2 : 4);
  check(length <= bytes.size() - before, source, ": the header should have ", length,
        " bytes, but only ", bytes.size() - before, " are left in the file.");
  HeaderParser header(std::string_view(raw + before, length), source);
  header.run();

  const std::string& descr = header.descr;
  const char order = descr.empty() ? '?' : descr[0];
  const auto type = std::ranges::find_if(
      npy_types, [&](const NpyType& t) { return descr.size() == 3 && descr.substr(1) == t.code; });
  check(
      type != std::end(npy_types) && (order == '<' || order == '>' || order == '|' || order == '='),
      source, ": holds elements of type '", descr,
      "', which Grapnel has no type for.\nConvert it where the file is made, e.g. "
      "array.astype('<f4').");
  const size_t size = element_size(type->dtype);
  const std::optional<uint64_t> counted = array_bytes(header.shape, size);
  check(counted.has_value(), source, ": an array of shape ", IntArrayRef(header.shape),
        " is too large.");
  const uint64_t total = *counted;
  const size_t have = bytes.size() - before - length;
  check(have == total, source, ": an array of shape ", IntArrayRef(header.shape), " and type ",
        descr, " needs ", total, " bytes, the file has ", have, ".",
        have < total ? "\nIt was cut off; copy or download it again." : "");

  std::vector<int64_t> sizes = header.shape;
  if (header.fortran) std::ranges::reverse(sizes);
  const Tensor out = empty(sizes, TensorOptions(type->dtype).device(kCPU));
  auto* to = static_cast<char*>(out.data_ptr());
  if (total > 0) std::memcpy(to, raw + before + length, total);
  if (order == '>')
    for (uint64_t i = 0; i < total; i += size) std::reverse(to + i, to + i + size);
  if (type->dtype == kBool)
    for (uint64_t i = 0; i < total; ++i) to[i] = to[i] != 0;
  if (!header.fortran || sizes.size() < 2) return out;
  std::vector<int64_t> back(sizes.size());
  for (size_t i = 0; i < back.size(); ++i) back[i] = static_cast<int64_t>(back.size() - 1 - i);
  return out.permute(back).contiguous();
}

std::string npy_bytes(const Tensor& tensor, const std::string& source) {
  check(tensor.defined(), source, ": the tensor is undefined and cannot be saved.");
  const auto type = std::ranges::find(npy_types, tensor.dtype(), &NpyType::dtype);
  check(type != std::end(npy_types), source, ": NumPy has no type for ", tensor.dtype(),
        ".\nConvert it first: t.to(kFloat32).");
  std::string shape;
  for (const int64_t n : tensor.sizes())
    shape += std::to_string(n) + (tensor.dim() == 1 ? "," : ", ");
  if (tensor.dim() > 1) shape.resize(shape.size() - 2);
  std::string header = str("{'descr': '", tensor.element_size() == 1 ? '|' : '<', type->code,
                           "', 'fortran_order': False, 'shape': (", shape, "), }");
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  const Tensor dense = tensor.detach().cpu().contiguous();
  return out.append(static_cast<const char*>(dense.data_ptr()),
                    static_cast<size_t>(dense.nbytes()));
}

Tensor load_npy(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  return parse_npy(std::as_bytes(std::span(bytes)), path.string());
}

void save_npy(const std::filesystem::path& path, const Tensor& tensor) {
  const std::string bytes = npy_bytes(tensor, path.string());
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace grapnel::io
