/// What a pickle made is looked through once, without recursion, before anybody gets it.
#include <algorithm>
#include <unordered_map>

#include "grapnel/base/error.h"
#include "grapnel/io/pickle.h"

namespace grapnel::io {

namespace {

using Kind = PtValue::Kind;
using Node = PtValue::Node;

template <class F>
void for_each_child(const Node& node, F&& f) {
  for (const PtValue& item : node.items) f(item);
  for (const auto& [key, value] : node.entries) f(key), f(value);
}

}  // namespace

std::unordered_set<const Node*> check_pickled(const PtValue& root, const std::string& source) {
  struct Level {
    const Node* node;
    std::vector<const Node*> children;
  };
  std::unordered_set<const Node*> open, done;
  std::unordered_map<const Node*, int> height;
  std::vector<Level> path;
  const auto enter = [&](const Node* node) {
    if (node->kind == Kind::name)
      fail(source, ": holds '", node->text, "', which is no data; it is not read.");
    if (node->kind == Kind::storage)
      fail(source, ": holds the memory of a tensor by itself, which cannot be read.");
    check(path.size() < size_t{most_pickle_levels}, source, ": values are nested more than ",
          most_pickle_levels, " deep.");
    path.push_back({node, {}});
    open.insert(node);
    for_each_child(*node, [&](const PtValue& child) {
      if (child.node()) path.back().children.push_back(child.node());
    });
  };
  if (root.node()) enter(root.node());
  while (!path.empty()) {
    Level& level = path.back();
    if (level.children.empty()) {
      int most = 0;
      for_each_child(*level.node, [&](const PtValue& child) {
        if (child.node()) most = std::max(most, height[child.node()]);
      });
      height[level.node] = most + 1;
      done.insert(level.node);
      open.erase(level.node);
      path.pop_back();
      continue;
    }
    const Node* const child = level.children.back();
    level.children.pop_back();
    check(!open.contains(child), source, ": a value contains itself.");
    if (!done.contains(child)) enter(child);
    else
      check(path.size() + static_cast<size_t>(height[child]) <= size_t{most_pickle_levels}, source,
            ": values are nested more than ", most_pickle_levels, " deep.");
  }
  return done;
}

}  // namespace grapnel::io
