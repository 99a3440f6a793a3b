/// OrderedDict: a map from names to values that remembers the order of insertion.
#pragma once

#include <initializer_list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"

namespace grapnel {

/// LibTorch's interface: items have key() and value(), `dict["x"]` throws when "x" is missing.
template <class Key, class Value>
class OrderedDict {
 public:
  /// A key and its value.
  class Item {
   public:
    Item(Key key, Value value) : pair_(std::move(key), std::move(value)) {}
    const Key& key() const { return pair_.first; }
    Value& value() { return pair_.second; }
    const Value& value() const { return pair_.second; }
    Value& operator*() { return value(); }
    const Value& operator*() const { return value(); }
    Value* operator->() { return &value(); }
    const Value* operator->() const { return &value(); }
    const std::pair<Key, Value>& pair() const { return pair_; }

   private:
    std::pair<Key, Value> pair_;
  };

  /// `what` names the keys in messages.
  explicit OrderedDict(std::string what = "Key") : what_(std::move(what)) {}
  OrderedDict(std::initializer_list<Item> items) {
    for (const Item& item : items) insert(item.key(), item.value());
  }

  size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }
  bool contains(const Key& key) const { return index_.contains(key); }
  /// Null when the key is missing.
  Value* find(const Key& key) {
    const auto it = index_.find(key);
    return it == index_.end() ? nullptr : &items_[it->second].value();
  }
  const Value* find(const Key& key) const { return const_cast<OrderedDict*>(this)->find(key); }
  Value& operator[](const Key& key) {
    Value* found = find(key);
    check(found != nullptr, what_, " '", key, "' is not defined.");
    return *found;
  }
  const Value& operator[](const Key& key) const { return const_cast<OrderedDict&>(*this)[key]; }
  Item& operator[](size_t i) { return const_cast<Item&>(std::as_const(*this)[i]); }
  const Item& operator[](size_t i) const {
    check(i < items_.size(), what_, ": there is no item ", i, ", the dictionary has ",
          items_.size(), ".");
    return items_[i];
  }

  /// Throws when the key exists.
  Value& insert(Key key, Value value) {
    check(!contains(key), what_, " '", key, "' already defined.");
    index_.emplace(key, items_.size());
    return items_.emplace_back(std::move(key), std::move(value)).value();
  }
  /// Replaces the value of an existing key in its place.
  Value& set(Key key, Value value) {
    if (Value* found = find(key)) return *found = std::move(value);
    return insert(std::move(key), std::move(value));
  }
  void update(const OrderedDict& other) {
    for (const Item& item : other) insert(item.key(), item.value());
  }
  /// Silent when the key is missing.
  void erase(const Key& key) {
    const auto it = index_.find(key);
    if (it == index_.end()) return;
    items_.erase(items_.begin() + static_cast<ptrdiff_t>(it->second));
    index_.clear();
    for (size_t i = 0; i < items_.size(); ++i) index_.emplace(items_[i].key(), i);
  }
  void clear() {
    items_.clear();
    index_.clear();
  }

  std::vector<Key> keys() const {
    std::vector<Key> out;
    for (const Item& item : items_) out.push_back(item.key());
    return out;
  }
  std::vector<Value> values() const {
    std::vector<Value> out;
    for (const Item& item : items_) out.push_back(item.value());
    return out;
  }
  std::vector<std::pair<Key, Value>> pairs() const {
    std::vector<std::pair<Key, Value>> out;
    for (const Item& item : items_) out.push_back(item.pair());
    return out;
  }
  const std::vector<Item>& items() const { return items_; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  /// The first and the last item; throw when there is none.
  Item& front() { return items_[position_in_filled(0)]; }
  Item& back() { return items_[position_in_filled(items_.size() - 1)]; }
  const Item& front() const { return items_[position_in_filled(0)]; }
  const Item& back() const { return items_[position_in_filled(items_.size() - 1)]; }

 private:
  size_t position_in_filled(size_t i) const {
    check(!items_.empty(), what_, ": front() and back() were asked of an empty dictionary.");
    return i;
  }

  std::string what_ = "Key";
  std::vector<Item> items_;
  std::unordered_map<Key, size_t> index_;
};

}  // namespace grapnel
