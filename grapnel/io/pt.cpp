/// The archive around a pickle of PyTorch's, and the few functions that the pickle may call: those
/// that rebuild tensors, and containers. See Note [Pickles that are data] in pickle.h.
#include "grapnel/io/pt.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <unordered_map>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/io/array_bytes.h"
#include "grapnel/io/pickle.h"
#include "grapnel/io/unzip.h"

namespace grapnel::io {

namespace {

using Kind = PtValue::Kind;

struct TypeName {
  std::string_view storage, dtype;
  DType type;
};
constexpr TypeName type_names[] = {
    {"torch.FloatStorage", "torch.float32", kFloat32},
    {"torch.DoubleStorage", "torch.float64", kFloat64},
    {"torch.HalfStorage", "torch.float16", kFloat16},
    {"torch.BFloat16Storage", "torch.bfloat16", kBFloat16},
    {"torch.LongStorage", "torch.int64", kInt64},
    {"torch.IntStorage", "torch.int32", kInt32},
    {"torch.ByteStorage", "torch.uint8", kUInt8},
    {"torch.BoolStorage", "torch.bool", kBool},
};

/// A pickle that is compressed could unpack to a thousand times its bytes, and each makes a value.
constexpr uint64_t most_packed_pickle = uint64_t{1} << 24;

class PtReader {
 public:
  PtReader(std::string_view bytes, const std::string& source)
      : archive_(bytes, source, "no file of torch.save"), source_(source) {
    for (const ZipMember& m : archive_.members()) by_name_.emplace(m.name, &m);
  }

  PtValue run() {
    const ZipMember& pickle = find_pickle();
    std::string room;
    const std::string_view code = archive_.contents(pickle, room);
    return run_pickle(
        code,
        {.is_text = [](std::string_view name) { return is_dtype(name); },
         .call = [this](const std::string& name, const PtValue& arguments,
                        const PickleMaker& make) { return call(name, arguments, make); },
         .persistent = [this](const PtValue& id,
                              const PickleMaker& make) { return storage(id, make); }},
        source_);
  }

 private:
  static bool is_dtype(std::string_view name) {
    constexpr std::string_view others[] = {"torch.int8",      "torch.int16",  "torch.uint16",
                                           "torch.uint32",    "torch.uint64", "torch.complex64",
                                           "torch.complex128"};
    return std::ranges::find(type_names, name, &TypeName::dtype) != std::end(type_names) ||
           std::ranges::find(others, name) != std::end(others);
  }

  const ZipMember& find_pickle() {
    const auto& all = archive_.members();
    const auto found =
        std::ranges::find_if(all, [](const ZipMember& m) { return m.name.ends_with("/data.pkl"); });
    check(found != all.end(), source_,
          ": is a ZIP archive, but holds no data.pkl, so torch.save did not write it.");
    folder_ = found->name.substr(0, found->name.size() - std::strlen("data.pkl"));
    check(found->method == 0 || found->size <= most_packed_pickle, source_, ": '", found->name,
          "' is compressed and has ", found->size, " bytes; the most is ", most_packed_pickle, ".");
    if (const auto order = by_name_.find(folder_ + "byteorder"); order != by_name_.end()) {
      std::string room;
      check(archive_.contents(*order->second, room) == "little", source_,
            ": holds numbers in another order of bytes than this machine's.");
    }
    return *found;
  }

  // --- storages ---

  /// ("storage", class, key, place, number of elements)
  PtValue storage(const PtValue& id, const PickleMaker& make) {
    const bool fits = id.kind() == Kind::tuple && id.items().size() == 5 &&
                      id.items()[0].kind() == Kind::text && id.items()[0].text() == "storage" &&
                      id.items()[1].kind() == Kind::name && id.items()[2].kind() == Kind::text;
    check(fits, source_, ": refers to ", id.describe(),
          " where the memory of a tensor is expected.");
    const auto out = make(Kind::storage);
    out->text = id.items()[2].text();
    out->items = {id.items()[1], id.items()[4]};
    return out;
  }

  std::optional<DType> type_of(const PtValue& storage) const {
    const std::string& name = storage.node()->items[0].node()->text;
    if (name == "torch.storage.UntypedStorage" || name == "torch.UntypedStorage") return {};
    const auto found = std::ranges::find(type_names, name, &TypeName::storage);
    check(found != std::end(type_names), source_, ": holds a tensor over a ", name,
          ", and Grapnel has no such type.\nConvert it before it is saved: x.to(torch.float32).");
    return found->type;
  }

  /// All elements of a storage, as one row. Whoever asks again gets the same memory.
  const Tensor& row(const PtValue& storage, DType type) {
    const std::string& key = storage.node()->text;
    const auto [found, fresh] = rows_.try_emplace(key);
    if (!fresh) {
      check(found->second.dtype() == type, source_, ": the memory '", key, "' is said to hold ",
            found->second.dtype(), " and ", type, ".");
      return found->second;
    }
    const auto member = by_name_.find(folder_ + "data/" + key);
    check(member != by_name_.end(), source_, ": the memory '", key, "' of a tensor is missing.");
    std::string room;
    const std::string_view bytes = archive_.contents(*member->second, room);
    const size_t size = element_size(type);
    check(bytes.size() % size == 0, source_, ": the memory '", key, "' has ", bytes.size(),
          " bytes, which are no whole number of ", type, ".");
    const Tensor out =
        empty({static_cast<int64_t>(bytes.size() / size)}, TensorOptions(type).device(kCPU));
    auto* to = static_cast<char*>(out.data_ptr());
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    if (type == kBool)
      for (size_t i = 0; i < bytes.size(); ++i) to[i] = to[i] != 0;
    return found->second = out;
  }

  // --- tensors ---

  std::vector<int64_t> sizes(const PtValue& value) const {
    std::vector<int64_t> out;
    for (const PtValue& item : value.items()) {
      check(out.size() < kMaxRank, source_, ": a tensor has more than ", kMaxRank, " dimensions.");
      out.push_back(item.to_int());
      check(out.back() >= 0, source_, ": a tensor has the size or stride ", out.back(), ".");
    }
    return out;
  }

  /// (storage, offset, sizes, strides, requires grad, hooks ...), or without the last two.
  Tensor tensor(const std::vector<PtValue>& a, std::optional<DType> said) {
    check(a.size() >= 4 && a[0].kind() == Kind::storage, source_,
          ": a tensor is made without its memory.");
    const std::optional<DType> own = type_of(a[0]);
    check(said || own, source_, ": a tensor has no type.");
    const Tensor& all = row(a[0], said ? *said : *own);
    const int64_t offset = a[1].to_int();
    const std::vector<int64_t> shape = sizes(a[2]), strides = sizes(a[3]);
    const auto bytes = array_bytes(shape, all.element_size());
    check(shape.size() == strides.size() && offset >= 0 && bytes, source_, ": a tensor of shape ",
          IntArrayRef(shape), " has the strides ", IntArrayRef(strides), " and begins at ", offset,
          ".");
    int64_t last = offset;
    for (size_t i = 0; i < shape.size() && *bytes > 0; ++i)
      last = checked_add(last, checked_mul(shape[i] - 1, strides[i], "a tensor in a .pt file"),
                         "a tensor in a .pt file");
    check(*bytes == 0 || last < all.numel(), source_, ": a tensor of shape ", IntArrayRef(shape),
          " and strides ", IntArrayRef(strides), " reaches beyond its memory, which has ",
          all.numel(), " elements.");
    const Tensor out = *bytes == 0 ? empty(shape, TensorOptions(all.dtype()).device(kCPU))
                                   : all.as_strided(shape, strides, offset).detach();
    return a.size() > 4 ? with_grad(out, a[4]) : out;
  }

  Tensor with_grad(const Tensor& t, const PtValue& wanted) const {
    if (!wanted.to_bool()) return t;
    check(t.is_floating_point(), source_, ": a tensor of ", t.dtype(), " requires grad.");
    t.set_requires_grad(true);
    return t;
  }

  // --- calls ---

  const PtValue& argument(const PtValue& arguments, size_t i) const {
    check(i < arguments.items().size(), source_, ": a call lacks arguments.");
    return arguments.items()[i];
  }

  PtValue call(const std::string& name, const PtValue& a, const PickleMaker& make) {
    if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor")
      return tensor(a.items(), {});
    if (name == "torch._utils._rebuild_tensor_v3") {
      const std::string& dtype = argument(a, 6).text();
      const auto found = std::ranges::find(type_names, dtype, &TypeName::dtype);
      check(found != std::end(type_names), source_, ": holds a tensor of ", dtype,
            ", and Grapnel has no such type.\nConvert it before it is saved: x.to(torch.float32).");
      return tensor(a.items(), found->type);
    }
    if (name == "torch._utils._rebuild_parameter" ||
        name == "torch._utils._rebuild_parameter_with_state")
      return with_grad(argument(a, 0).tensor(), argument(a, 1));
    if (name == "torch._tensor._rebuild_from_type_v2") return typed(a, make);
    if (name == "torch.jit._pickle.restore_type_tag") return argument(a, 0);
    return container(name, a, make);
  }

  /// (function, class, its arguments, attributes), of which the attributes are left out.
  PtValue typed(const PtValue& a, const PickleMaker& make) {
    const PtValue &function = argument(a, 0), &arguments = argument(a, 2);
    check(function.kind() == Kind::name && arguments.kind() == Kind::tuple &&
              function.node()->text != "torch._tensor._rebuild_from_type_v2",
          source_, ": a tensor is made by ", function.describe(), ".");
    return call(function.node()->text, arguments, make);
  }

  PtValue container(const std::string& name, const PtValue& a, const PickleMaker& make) {
    const bool empty = a.items().empty();
    if (name == "collections.OrderedDict" || name == "collections.Counter") {
      if (!empty && argument(a, 0).kind() == Kind::dict) return argument(a, 0);
      const auto out = make(Kind::dict);
      if (!empty)
        for (const PtValue& pair : argument(a, 0).items())
          out->entries.emplace_back(argument(pair, 0), argument(pair, 1));
      return out;
    }
    for (const char* known :
         {"torch.jit._pickle.build_intlist", "torch.jit._pickle.build_boollist",
          "torch.jit._pickle.build_doublelist", "torch.jit._pickle.build_tensorlist",
          "builtins.set", "__builtin__.set", "builtins.frozenset", "__builtin__.frozenset",
          "torch.Size"})
      if (name == known) return empty ? PtValue(make(Kind::list)) : argument(a, 0);
    if (name == "torch.device") {
      const auto out = make(Kind::text);
      out->text = argument(a, 0).text();
      if (a.items().size() > 1) out->text += str(":", argument(a, 1).to_int());
      return out;
    }
    if (name == "_codecs.encode") return latin1(argument(a, 0).text(), make);
    fail(source_, ": asks for '", name,
         "', which is code. Only data is read: tensors, numbers, texts, lists and dicts of them.\n"
         "Save the state_dict() of a model, and not the model itself.");
  }

  /// How protocol 2 writes bytes: as a text of characters below 256, in UTF-8.
  PtValue latin1(const std::string& text, const PickleMaker& make) const {
    const auto out = make(Kind::bytes);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto first = static_cast<uint8_t>(text[i]);
      if (first < 0x80) {
        out->text += text[i];
        continue;
      }
      check((first & 0xfc) == 0xc0 && i + 1 < text.size(), source_, ": holds damaged bytes.");
      const auto second = static_cast<uint8_t>(text[++i]);
      out->text += static_cast<char>((first & 3) << 6 | (second & 0x3f));
    }
    return out;
  }

  ZipArchive archive_;
  const std::string& source_;
  std::unordered_map<std::string_view, const ZipMember*> by_name_;
  std::string folder_;  ///< of all entries
  std::unordered_map<std::string, Tensor> rows_;
};

}  // namespace

bool is_pt(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  char begin[4] = {};
  return in.read(begin, sizeof begin) && std::string_view(begin, sizeof begin) == "PK\x03\x04";
}

PtValue load_pt(const std::filesystem::path& path) {
  const std::string bytes = read_text(path);
  return parse_pt(std::as_bytes(std::span(bytes)), path.string());
}

PtValue parse_pt(std::span<const std::byte> bytes, const std::string& source) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check(!text.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"), source,
        ": has the form that torch.save wrote before version 1.6.\nLoad it there, and save it "
        "again.");
  return PtReader(text, source).run();
}

}  // namespace grapnel::io
