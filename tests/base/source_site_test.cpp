#include "grapnel/base/source_site.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

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
