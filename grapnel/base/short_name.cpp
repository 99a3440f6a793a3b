#include "grapnel/base/short_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace grapnel::base {

namespace {

constexpr size_t kLongest = 80;

std::string demangled(const char* symbol) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr), &std::free);
  return name != nullptr ? name.get() : symbol;
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Reads a demangled name into its parts: what stands between "::", without what brackets enclose.
class Parts {
 public:
  explicit Parts(std::string_view name) : rest_(name) {
    while (!rest_.empty()) step();
    end_part();
  }
  std::vector<std::string> parts;

 private:
  void step() {
    if (skip("(anonymous namespace)::") || skip("[abi:cxx11]")) return;
    if (rest_.starts_with("::")) {
      rest_.remove_prefix(2);
      return end_part();
    }
    if (part_.empty() && rest_.size() > 8 && rest_.starts_with("operator") && !is_word(rest_[8]))
      return take_operator();
    const char c = rest_[0];
    if (c == '{') {
      part_ = rest_.starts_with("{lambda") ? "lambda" : "unnamed";
      return skip_brackets();
    }
    if (c == '<') {
      template_ = true;
      return skip_brackets();
    }
    // Behind the parameters stand qualifiers, or what is local to the function.
    if (c == '(') {
      skip_brackets();
      const size_t next = rest_.find("::");
      rest_ = next == rest_.npos || rest_.find_first_of("<({") < next ? std::string_view()
                                                                      : rest_.substr(next);
      return;
    }
    // What stood before was the type that is returned.
    if (c == ' ') {
      parts.clear();
      part_.clear();
      template_ = false;
    } else {
      part_ += c;
    }
    rest_.remove_prefix(1);
  }
  void take_operator() {
    const size_t from = rest_.substr(8).starts_with("()") ? 10 : 8;
    const size_t end = std::min(rest_.find('(', from), rest_.size());
    part_ = rest_.substr(0, end);
    rest_.remove_prefix(end);
  }
  void skip_brackets() {
    int depth = 0;
    size_t i = 0;
    for (; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (c == '<' || c == '(' || c == '{') ++depth;
      // An arrow is no bracket.
      if ((c == '>' && rest_[i - 1] != '-') || c == ')' || c == '}') --depth;
      if (depth == 0) break;
    }
    rest_.remove_prefix(std::min(i + 1, rest_.size()));
  }
  bool skip(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void end_part() {
    if (!part_.empty()) parts.push_back(part_ + (template_ ? "<...>" : ""));
    part_.clear();
    template_ = false;
  }

  std::string_view rest_;
  std::string part_;
  bool template_ = false;
};

}  // namespace

std::string shorten(std::string_view name, bool is_function) {
  // "f() [clone .cold]" and its like, which is "main.cold" in C.
  if (const size_t clone = name.find(" [clone"); clone != name.npos) name = name.substr(0, clone);
  if (name.ends_with(".cold")) name.remove_suffix(5);
  std::vector<std::string> parts = Parts(name).parts;
  bool lambda = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != "lambda") continue;
    lambda = true;
    parts.resize(i);
  }
  std::string text = lambda ? "lambda" : "";
  if (parts.empty()) return text.empty() ? std::string(name.substr(0, kLongest)) : text;
  if (lambda) text += " in ";
  // A class and its member, or a namespace and its function; a type stands alone.
  if (parts.size() > 1 && (is_function || lambda)) {
    const std::string& outer = parts[parts.size() - 2];
    if (outer != "grapnel" && outer != "unnamed") text += outer + "::";
  }
  const std::string last = parts.back();
  const bool cut = (is_function || lambda) && last.ends_with("<...>");
  text += cut ? last.substr(0, last.size() - 5) : last;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return is_function || lambda ? text + "()" : text;
}

std::string short_function_name(const char* symbol) {
  const std::string name = demangled(symbol);
  // Generic lambdas with many parameters are too much for some demanglers.
  if (name.starts_with("_Z"))
    for (const std::string_view local : {"ENKUl", "ENUl"})
      if (name.find(local) != name.npos) return "lambda";
  return shorten(name, true);
}

std::string short_type_name(const std::type_info& type) {
  return shorten(demangled(type.name()), false);
}
std::string short_type_name(const std::string& name) {
  return name.find("::") == name.npos && name.size() <= kLongest ? name : shorten(name, false);
}

}  // namespace grapnel::base
