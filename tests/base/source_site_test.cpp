#include "grapnel/base/source_site.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "grapnel/base/place.h"
#include "grapnel/base/error.h"
#include "grapnel/base/short_name.h"
#include "grapnel/base/symbolizer.h"
#include "grapnel/base/thread_pool.h"

using namespace grapnel::base;

namespace {

// A public function of some library, and one that it uses.
[[gnu::noinline]] SourceSite inner() {
  const CallSiteScope scope(__builtin_return_address(0));
  return {current_call_site()};
}
[[gnu::noinline]] SourceSite outer() {
  const CallSiteScope scope(__builtin_return_address(0));
  const SourceSite site = inner();
  CHECK(site == SourceSite{current_call_site()});
  return site;
}

struct Called {
  SourceSite site;
  int line;
};

// The user.
[[gnu::noinline]] Called call_from_a_known_line() {
  const int line = __LINE__ + 1;
  const SourceSite site = outer();
  asm volatile("");  // something left to do, or the call would become a jump and return elsewhere
  return {site, line};
}

std::string expected(int line) { return "source_site_test.cpp:" + std::to_string(line); }

}  // namespace

// A function the compiler knows nothing of, in a section of its own, where no line table reaches.
asm(R"(
  .pushsection .text.function_without_lines, "ax", @progbits
  .globl function_without_lines
  .type function_without_lines, @function
function_without_lines:
  nop
  nop
  nop
  nop
  .size function_without_lines, . - function_without_lines
  .popsection
)");
extern "C" const char function_without_lines[];

TEST_CASE("a call site is described by the file, line and function of the outermost call") {
  const Called called = call_from_a_known_line();
  const std::string text = describe(called.site);
  CAPTURE(text);
  CHECK(text.find(expected(called.line)) != std::string::npos);
  CHECK(text.find("call_from_a_known_line()") != std::string::npos);
  CHECK(describe(called.site) == text);
}

TEST_CASE("the call site ends with the scope that set it") {
  CHECK(current_call_site() == nullptr);
  {
    const int here = 0;
    const CallSiteScope scope(&here);
    CHECK(current_call_site() == &here);
    {
      const int further_in = 0;
      const CallSiteScope nested(&further_in);
      CHECK(current_call_site() == &here);
    }
    CHECK(current_call_site() == &here);
  }
  CHECK(current_call_site() == nullptr);
}

TEST_CASE("user code called back by the library has call sites of its own") {
  const int here = 0, there = 0;
  const CallSiteScope scope(&here);
  {
    const UserCodeScope user;
    CHECK(current_call_site() == nullptr);
    const CallSiteScope nested(&there);
    CHECK(current_call_site() == &there);
  }
  CHECK(current_call_site() == &here);
}

TEST_CASE("every thread has its own call site") {
  const int here = 0;
  const CallSiteScope scope(&here);
  const void* seen = &here;
  std::thread([&] { seen = current_call_site(); }).join();
  CHECK(seen == nullptr);
}

TEST_CASE("without debug lines a call site is described by its symbol and module") {
  const std::string text = describe({function_without_lines + 2});
  CAPTURE(text);
  CHECK(text.starts_with("function_without_lines+0x2 in "));
}

TEST_CASE("an address that belongs to no code is described by itself") {
  CHECK(describe({reinterpret_cast<const void*>(0x10)}) == "0x10");
  CHECK(describe({}) == "an unknown place");
}

TEST_CASE("several threads may describe call sites at once") {
  const Called called = call_from_a_known_line();
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) threads.emplace_back([&] { text = describe(called.site); });
  for (auto& thread : threads) thread.join();
  for (const std::string& text : texts)
    CHECK(text.find(expected(called.line)) != std::string::npos);
}

TEST_CASE("names of functions are cut to what tells them apart") {
  const auto shortened = [](const char* name) { return shorten(name, true); };
  CHECK(shortened("main") == "main()");
  CHECK(shortened("(anonymous namespace)::step(int)") == "step()");
  CHECK(shortened("app::(anonymous namespace)::train<float>(Net&)") == "app::train()");
  CHECK(shortened("NetImpl::forward(grapnel::Tensor const&) const") == "NetImpl::forward()");
  CHECK(shortened("grapnel::relu(grapnel::Tensor const&)") == "relu()");
  CHECK(shortened("main::{lambda(grapnel::Tensor const&)#1}::operator()(grapnel::Tensor) const") ==
        "lambda in main()");
  CHECK(shortened("auto f<int>(int)::{lambda(auto:1)#2}::operator()<int>(int) const") ==
        "lambda in f()");
  CHECK(shortened("std::map<int, std::pair<A, B> >::insert(std::pair<A, B>&&)") ==
        "map<...>::insert()");
  CHECK(shortened("bool operator<(A const&, A const&)") == "operator<()");
  CHECK(shortened("A::operator()(int) const") == "A::operator()()");
  CHECK(shortened("step(int) [clone .cold]") == "step()");
  CHECK(shortened(std::string(3000, 'x').c_str()).size() < 100);
  CHECK(shortened("") == "");
  CHECK(shortened("operator") == "operator()");
  CHECK(shortened("<(<") == "<(<");
}

TEST_CASE("names of types are cut to the last part") {
  CHECK(shorten("app::(anonymous namespace)::NetImpl", false) == "NetImpl");
  CHECK(shorten("Wrapped<app::Net, std::allocator<int> >", false) == "Wrapped<...>");
  CHECK(short_type_name("mul") == "mul");
  CHECK(short_type_name(typeid(Called)) == "Called");
}

TEST_CASE("the caller of the library is the nearest line outside of it") {
  std::string text;
  int line = 0;
  // Frames of the standard library are passed over, too.
  const std::function<void()> user = [&] { line = __LINE__, text = describe_caller(); };
  user();
  CAPTURE(text);
  CHECK(text.find(expected(line) + " (lambda") != std::string::npos);
}

TEST_CASE("an error of the library's has a place, one that the user throws by check() has none") {
  const auto text_of = [](auto&& fn) -> std::string {
    try {
      fn();
    } catch (const grapnel::Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(text_of([] { grapnel::fail("mine: no"); }) == "mine: no");
  CHECK(text_of([] { grapnel::check(false, "mine: ", 2, " is odd"); }) == "mine: 2 is odd");
  int line = 0;
  const std::string text = text_of([&] { line = __LINE__, grapnel::set_num_threads(-7); });
  CAPTURE(text);
  CHECK(without_places(text) != text);
  CHECK(text.find("\n  at ") != std::string::npos);
  CHECK(text.find(expected(line) + " (lambda") != std::string::npos);
}

TEST_CASE("without_places leaves a message of several lines as it is") {
  CHECK(without_places("a: b.\nDo c.") == "a: b.\nDo c.");
  CHECK(without_places("a: b.\nDo c.\n  at f.cpp:1 (g())\n  in the tensor hook") ==
        "a: b.\nDo c.");
  CHECK(without_places("") == "");
  CHECK(with_places_inside("a: b.\nDo c.\n  at f.cpp:1 (g())\n  in the tensor hook") ==
        "a: b.\nDo c.; at f.cpp:1 (g()); in the tensor hook");
  CHECK(with_places_inside("a: b.") == "a: b.");
}
