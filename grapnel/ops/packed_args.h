/// PackedArgs: the values of a node or hook as one flat list, to be read back in the same order.
///
/// Keys and graphs do not need it, because what a node does is in the trace; it serves those who
/// carry a node's arguments across a boundary of their own, as LibTorch's type of this name does.
#pragma once

#include <any>
#include <cstddef>
#include <typeinfo>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/ops/op.h"

namespace grapnel {

class PackedArgs {
 public:
  /// Any copyable value: tensors, optionals, lists, shapes, flags, maps.
  template <class T>
  void pack(const T& value) {
    values_.emplace_back(std::in_place_type<T>, value);
  }
  /// All attributes of an op.
  void pack_attrs(const Op& op, const void* attrs) {
    Writer writer{*this};
    op.visit_attrs(attrs, writer);
  }
  /// The next value, which must have been packed as exactly this type.
  template <class T>
  T unpack() {
    check(next_ < values_.size(), "PackedArgs: all ", values_.size(),
          " values have been unpacked already.");
    const T* value = std::any_cast<T>(&values_[next_]);
    check(value != nullptr, "PackedArgs: value ", next_,
          " was packed as another type than it is unpacked as (", typeid(T).name(), ", was ",
          values_[next_].type().name(), ").");
    ++next_;
    return *value;
  }
  void unpack_attrs(const Op& op, void* attrs) {
    Reader reader{*this};
    op.read_attrs(attrs, reader);
  }
  size_t size() const { return values_.size(); }

 private:
  struct Writer final : AttrVisitor {
    PackedArgs& args;
    explicit Writer(PackedArgs& a) : args(a) {}
    void on(std::string_view, bool value) override { args.pack(value); }
    void on(std::string_view, int64_t value) override { args.pack(value); }
    void on(std::string_view, double value) override { args.pack(value); }
    void on(std::string_view, DType value) override { args.pack(value); }
    void on(std::string_view, const Shape& value) override { args.pack(value); }
  };
  struct Reader final : AttrReader {
    PackedArgs& args;
    explicit Reader(PackedArgs& a) : args(a) {}
    void on(std::string_view, bool& value) override { value = args.unpack<bool>(); }
    void on(std::string_view, int64_t& value) override { value = args.unpack<int64_t>(); }
    void on(std::string_view, double& value) override { value = args.unpack<double>(); }
    void on(std::string_view, DType& value) override { value = args.unpack<DType>(); }
    void on(std::string_view, Shape& value) override { value = args.unpack<Shape>(); }
  };

  std::vector<std::any> values_;
  size_t next_ = 0;
};

}  // namespace grapnel
