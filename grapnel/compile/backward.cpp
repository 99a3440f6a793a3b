#include "grapnel/compile/backward.h"

namespace grapnel {

CompiledBackward::CompiledBackward(const CompileOptions& options)
    : session_(std::make_shared<compile_detail::Session>(options)),
      outer_(engine::set_pass_runner(this)) {}

CompiledBackward::~CompiledBackward() noexcept(false) {
  engine::PassRunner* const top = engine::set_pass_runner(outer_);
  if (top == this) return;
  engine::set_pass_runner(top);
  // Not while another exception is on its way: two at once would end the program.
  if (std::uncaught_exceptions() == 0)
    fail(
        "CompiledBackward: an outer scope ended before an inner one.\nScopes of one thread end in "
        "the reverse order of their beginning.");
}

void CompiledBackward::run(const std::function<void()>& walk) {
  compile_detail::CompileScope scope(session_);
  walk();
  scope.finish();
}

}  // namespace grapnel
