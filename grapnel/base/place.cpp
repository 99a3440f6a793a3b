#include "grapnel/base/place.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/error.h"
#include "grapnel/base/foreign.h"
#include "grapnel/base/symbolizer.h"

namespace grapnel {
namespace base {

namespace {

/// A line that says where something happened begins like this, and no line of a message does.
constexpr std::string_view kAt = "\n  at ", kIn = "\n  in ";
/// More lines than these tell nobody anything: the first and the last ones stay.
constexpr size_t kMostNotes = 3;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// "cross_entropy" of "grapnel::Tensor grapnel::cross_entropy(const grapnel::Tensor&, ...)";
/// nothing for operators, whose ops have names of their own.
std::string_view name_in(const char* pretty_function) {
  if (pretty_function == nullptr) return {};
  const std::string_view all = pretty_function;
  const std::string_view head = all.substr(0, all.find('('));
  if (head.find("operator") != head.npos) return {};
  size_t from = head.size();
  while (from > 0 && is_word(head[from - 1])) --from;
  return head.substr(from);
}

/// "gather: index 7 ..." is "cross_entropy: in gather: index 7 ..." for one who called that.
std::string by_name(std::string_view op, std::string_view message) {
  const size_t colon = message.find(": ");
  const std::string_view inner = message.substr(0, colon == message.npos ? 0 : colon);
  const auto bare = [](std::string_view name) {
    return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
  };
  const bool named = op.empty() || inner.empty() || !std::ranges::all_of(inner, is_word) ||
                     bare(inner) == bare(op);
  return named ? std::string(message) : str(op, ": in ", message);
}

std::string current_module() {
  for (const Place* c = Place::innermost(); c; c = c->outer())
    if (c->kind() == Place::Kind::module) return c->remember()->text();
  return {};
}

std::string place_line(const std::string& where, const std::string& context) {
  if (where.empty()) return context.empty() ? "" : "\n  " + context;
  return str(kAt, where, context.empty() ? "" : ", ", context);
}

void set_text(Error& error, const std::string& text) {
  static_cast<std::runtime_error&>(error) = std::runtime_error(text);
}

/// Lines beside exceptions of other types than Error that came through the library: of the last
/// few, which are kept alive, so that another exception is never taken for one of them.
class Beside {
 public:
  static Beside& all() {
    // Never destroyed: exceptions are also thrown during static destruction.
    static Beside& one = *new Beside;
    return one;
  }
  template <class Change>
  void change(const std::exception_ptr& error, Change&& fn) {
    std::exception_ptr forgotten;  // ends outside the lock: it is the user's
    const std::lock_guard lock(mutex_);
    for (Entry& e : entries_)
      if (e.error == error) return fn(e.lines);
    Entry& entry = entries_[next_++ % entries_.size()];
    forgotten = std::exchange(entry.error, error);
    entry.lines.clear();
    fn(entry.lines);
  }
  std::string lines_of(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    for (const Entry& e : entries_)
      if (e.error == error) return e.lines;
    return {};
  }

 private:
  struct Entry {
    std::exception_ptr error;
    std::string lines;
  };
  ProcessMutex mutex_{ForkOrder::failures};
  std::array<Entry, 8> entries_;
  size_t next_ = 0;
};

void append_note(std::string& text, const std::string& line) {
  const size_t from = without_places(text).size();
  // A hook of a module is also one of a node; what was told first is nearer to the user.
  constexpr std::string_view key = " registered at ";
  if (const size_t at = line.find(key); at != line.npos) {
    const std::string_view site = std::string_view(line).substr(at, line.find(',', at) - at);
    const std::string_view told = std::string_view(text).substr(from);
    const size_t known = told.find(site);
    // "train.cpp:1" is no "train.cpp:12".
    if (known != told.npos &&
        (known + site.size() == told.size() || !is_word(told[known + site.size()])))
      return;
  }
  const auto lines = std::count(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(), '\n');
  if (static_cast<size_t>(lines) > kMostNotes) {
    // The last line gives way.
    text.resize(text.rfind('\n'));
    if (!text.ends_with("\n  ...")) text += "\n  ...";
  }
  text += "\n  " + line;
}

}  // namespace

std::string_view without_places(std::string_view message) {
  return message.substr(0, std::min(message.find(kAt), message.find(kIn)));
}

std::string with_places_inside(std::string_view message) {
  const std::string_view head = without_places(message);
  std::string text(head);
  for (std::string_view rest = message.substr(head.size()); !rest.empty();) {
    rest.remove_prefix(std::min(rest.find_first_not_of("\n "), rest.size()));
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (!line.empty()) text += str("; ", line);
    rest.remove_prefix(line.size());
  }
  return text;
}

std::string_view message_of(const Error& error) { return without_places(error.what()); }

std::string with_place(const std::string& message) {
  const SourceSite foreign = foreign_site_now();
  const std::string where = foreign.address != nullptr ? describe(foreign) : describe_failure();
  if (where.empty()) return by_name(name_in(this_context.called_op), message);
  return by_name(name_in(this_context.called_op), message) + place_line(where, current_module());
}

void set_place(Error& error, const void* site, const char* op, const Remembered* place) {
  const bool in_module = place != nullptr && place->is_module();
  std::string text =
      by_name(site != nullptr ? name_in(op) : "", message_of(error)) +
      place_line(site != nullptr ? describe({site}) : "", in_module ? place->text() : "");
  if (place != nullptr && !in_module) text += "\n  " + place->text();
  set_text(error, text);
}

void note(const std::string& line) noexcept {
  try {
    throw;
  } catch (Error& error) {
    try {
      std::string text = error.what();
      append_note(text, line);
      set_text(error, text);
    } catch (...) {
    }
  } catch (...) {
    try {
      Beside::all().change(std::current_exception(),
                           [&](std::string& lines) { append_note(lines, line); });
    } catch (...) {
    }
  }
}

void rethrow_here(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (Error& e) {
    try {
      const std::string text = e.what();
      if (without_places(text).size() == text.size()) set_text(e, with_place(text));
    } catch (...) {
      // Without memory there is no place.
    }
    throw;
  }
}

}  // namespace base

std::string explain(const std::exception_ptr& error) {
  if (!error) return {};
  std::string text = "an exception of unknown type";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
  }
  return text + base::Beside::all().lines_of(error);
}

}  // namespace grapnel
