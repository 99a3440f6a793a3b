/// Files of PyTorch and LibTorch: what torch.save(object) and torch::save(module) write, such as
/// .pt and .pth. They are read as data only, never as code.
///
///   const io::PtValue file = io::load_pt("net.pt");
///   net->load_state_dict(file["model"].tensors());
///
/// A file is a ZIP archive with a pickle, which is a small program that makes objects. Of what it
/// may ask for, only data is known here: tensors, numbers, texts, lists, tuples, dicts. Anything
/// else, a class or a function, is an Error that names it, and nothing of it is run. Tensors that
/// shared memory share it again. A file that is damaged, cut off or made up gives an Error, and
/// asks for memory in proportion to its bytes.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "grapnel/io/safetensors.h"

namespace grapnel::io {

/// A value in a file of PyTorch's: nothing, a truth value, a number, a text, a tensor, or a
/// container of such values. Copies share what they hold.
class PtValue {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    number,
    tensor,
    text,
    bytes,
    list,
    tuple,
    dict,
    name,     ///< of a class or function, only while a file is read
    storage,  ///< of tensors, only while a file is read
  };
  using Entry = std::pair<PtValue, PtValue>;
  struct Node;

  PtValue() = default;
  PtValue(bool value) : value_(value) {}
  PtValue(int64_t value) : value_(value) {}
  PtValue(double value) : value_(value) {}
  PtValue(Tensor value) : value_(std::move(value)) {}
  PtValue(std::shared_ptr<Node> node) : value_(std::move(node)) {}

  Kind kind() const;
  bool is_none() const { return kind() == Kind::none; }
  // Each throws if it is something else.
  bool to_bool() const;
  int64_t to_int() const;
  /// Of an integer, too.
  double to_double() const;
  const Tensor& tensor() const;
  /// A text, or bytes.
  const std::string& text() const;
  /// Of a list or a tuple.
  const std::vector<PtValue>& items() const;
  /// Of a dict, in their order. If a key is there twice, the last one counts.
  const std::vector<Entry>& entries() const;

  /// Whether a dict has this key.
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// The value of a key in a dict, or an Error.
  const PtValue& operator[](std::string_view key) const;

  /// All tensors under their names, "layer.weight" for one in a dict in a dict. A tensor by itself
  /// is "value".
  NamedTensors tensors() const;
  /// Equal for values that were one object, if they are containers or texts; otherwise null.
  const Node* node() const;
  /// What it is, for messages: "a list of 3 values".
  std::string describe() const;

 private:
  const PtValue* find(std::string_view key) const;
  const Node& node_of(Kind kind, const char* wanted) const;
  std::variant<std::monostate, bool, int64_t, double, Tensor, std::shared_ptr<Node>> value_;
};

/// What values that are no numbers hold.
struct PtValue::Node {
  Kind kind = Kind::list;
  bool is_object = false;  ///< a dict that stands for an object of LibTorch's
  std::string text = {};
  std::vector<PtValue> items = {};
  std::vector<Entry> entries = {};
};

/// Whether a file is a ZIP archive, as those of torch.save are. False if there is none.
bool is_pt(const std::filesystem::path& path);
/// Reads a file of torch.save or torch::save.
PtValue load_pt(const std::filesystem::path& path);
/// The same from memory; `source` names it in messages.
PtValue parse_pt(std::span<const std::byte> bytes, const std::string& source = "pt");

}  // namespace grapnel::io
