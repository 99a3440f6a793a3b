#include "python/src/lines.h"

#include <nanobind/stl/string.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/base/foreign.h"
#include "python/src/module.h"
#include "python/src/pass_line.h"

namespace grapnel::python {

namespace {

/// A line, or an instruction, of a piece of code.
struct Line {
  PyCodeObject* code;
  int number;
  bool operator==(const Line&) const = default;
};
struct Hash {
  size_t operator()(const Line& l) const {
    return std::hash<const void*>()(l.code) * 31 + static_cast<size_t>(l.number);
  }
};
constexpr uint64_t kOurs = UINT64_MAX;

/// Numbers are given with the interpreter's lock in hand; texts are read without. Whatever code is in here stays alive: its address
/// stands for it.
struct Lines {
  std::unordered_map<Line, uint64_t, Hash> numbers;
  std::unordered_set<PyCodeObject*> ours;  ///< code of the package
  std::mutex mutex;
  std::vector<std::string> texts;
  /// What instructions asked lately, so that a line is computed once and not at each call. Each has one place.
  struct Recent {
    Line instruction{nullptr, 0};
    uint64_t number = 0;
  } recent[512];
};
Lines& lines() {
  static auto* const all = new Lines;
  return *all;
}

/// Where the package lies, with a slash at its end.
std::string& package() {
  static auto* const folder = new std::string;
  return *folder;
}

std::string utf8(PyObject* text) {
  const char* const bytes = text ? PyUnicode_AsUTF8(text) : nullptr;
  if (!bytes) PyErr_Clear();
  return bytes ? bytes : "?";
}

bool is_ours(PyCodeObject* code) {
  if (lines().ours.contains(code)) return true;
  if (package().empty() || !utf8(code->co_filename).starts_with(package())) return false;
  lines().ours.insert(code);
  Py_INCREF(code);
  return true;
}

uint64_t number_of(PyCodeObject* code, int line) {
  Lines& all = lines();
  const auto [found, fresh] = all.numbers.try_emplace({code, line}, all.numbers.size());
  if (fresh) {
    Py_INCREF(code);
    const std::lock_guard lock(all.mutex);
    all.texts.push_back(
        str(utf8(code->co_filename), ":", line, " (", utf8(code->co_qualname), ")"));
  }
  return found->second;
}

/// The number of the line that a frame is at, or kOurs.
uint64_t number_of(PyFrameObject* frame, PyCodeObject* code) {
  const Line instruction{code, PyFrame_GetLasti(frame)};
  Lines::Recent& recent = lines().recent[(reinterpret_cast<uintptr_t>(code) / 32 * 17 +
                                          static_cast<unsigned>(instruction.number) / 2) %
                                         512];
  if (recent.instruction == instruction) return recent.number;
  const uint64_t number = is_ours(code) ? kOurs : number_of(code, PyFrame_GetLineNumber(frame));
  recent = {instruction, number};
  return number;
}

std::string describe(uint64_t number) {
  const std::lock_guard lock(lines().mutex);
  return number < lines().texts.size() ? lines().texts[number] : std::string();
}

/// Of the innermost PassLine on this thread.
thread_local base::SourceSite line_of_pass;

/// For messages about what fails now. Without the interpreter's lock it is the line that gave the
/// lock away: taking it again might wait for somebody who waits for a lock of the library's.
base::SourceSite now() {
  if (PyGILState_Check()) return line_now();
  const base::SourceSite here{base::current_call_site()};
  return here.is_foreign() ? here : line_of_pass;
}

}  // namespace

base::SourceSite line_now() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    const uint64_t number = number_of(frame, code);
    Py_DECREF(code);
    PyFrameObject* const outer = number == kOurs ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    if (number != kOurs) return base::SourceSite::foreign(number);
    frame = outer;
  }
  return {};
}

PassLine::PassLine() : outer_(std::exchange(line_of_pass, line_now())) {}
PassLine::~PassLine() { line_of_pass = outer_; }

void bind_lines(nb::module_& m) {
  base::set_foreign_language({.describe = describe, .now = now});
  m.def("_set_package", [](std::string folder) {
    package() = std::move(folder);
    for (Lines::Recent& recent : lines().recent) recent = {};  // which code is ours has changed
  });
}

}  // namespace grapnel::python
