#include "grapnel/functions/nested_values.h"

#include <string>

#include "grapnel/base/error.h"

namespace grapnel {

namespace {

/// "[1][0]"
std::string text(const std::vector<int64_t>& path, int64_t last) {
  std::string out;
  for (int64_t i : path) out += str('[', i, ']');
  return out + str('[', last, ']');
}

}  // namespace

Shape NestedValues::shape() const { return shape_at({}); }

Shape NestedValues::shape_at(const std::vector<int64_t>& path) const {
  if (std::holds_alternative<One>(data_)) return {};
  if (const Row* row = std::get_if<Row>(&data_)) return {static_cast<int64_t>(row->size)};
  const auto& items = std::get<std::vector<NestedValues>>(data_);
  Shape sizes{static_cast<int64_t>(items.size())};
  if (items.empty()) return sizes;
  Shape first;
  std::vector<int64_t> below = path;
  below.push_back(0);
  for (size_t i = 0; i < items.size(); ++i) {
    below.back() = static_cast<int64_t>(i);
    const Shape inner = items[i].shape_at(below);
    if (i == 0) first = inner;
    if (inner != first) [[unlikely]]
      fail("tensor: the lists are ragged: ", text(path, static_cast<int64_t>(i)), " has shape ",
           inner, " but ", text(path, 0), " has shape ", first,
           ".\nAll lists of one level must have the same length.");
  }
  for (int64_t size : first) sizes.push_back(size);
  return sizes;
}

DType NestedValues::dtype() const {
  DType common = get_default_dtype();
  bool any = false;
  find_dtype(common, any);
  return common;
}

void NestedValues::find_dtype(DType& common, bool& any) const {
  auto meet = [&](DType t) {
    common = any ? promote_types(common, t) : t;
    any = true;
  };
  if (const One* one = std::get_if<One>(&data_)) meet(one->dtype);
  else if (const Row* row = std::get_if<Row>(&data_)) meet(row->dtype);
  else
    for (const NestedValues& item : std::get<std::vector<NestedValues>>(data_))
      item.find_dtype(common, any);
}

}  // namespace grapnel
