#include "grapnel/compile/backward.h"

#include <exception>

namespace grapnel {

CompiledBackward::CompiledBackward(const CompileOptions& options)
    : CompiledBackward(compiler::make_session(options)) {}

CompiledBackward::CompiledBackward(std::shared_ptr<compiler::Session> session)
    : session_(std::move(session)), outer_(engine::set_pass_runner(this)) {}

CompiledBackward::~CompiledBackward() noexcept(false) {
  if (ended_) return;
  if (std::uncaught_exceptions() == 0) {
    end();
  } else if (engine::PassRunner* const top = engine::set_pass_runner(outer_); top != this) {
    // Another exception is on its way, and two at once would end the program.
    engine::set_pass_runner(top);
  }
}

void CompiledBackward::end() {
  engine::PassRunner* const top = engine::set_pass_runner(outer_);
  ended_ = top == this;
  if (ended_) return;
  engine::set_pass_runner(top);
  fail(
      "CompiledBackward: an outer scope ended before an inner one.\nScopes of one thread end in "
      "the reverse order of their beginning.");
}

void CompiledBackward::run(const std::function<void()>& walk) {
  compiler::CompileScope scope(session_);
  walk();
  scope.finish();
}

}  // namespace grapnel
