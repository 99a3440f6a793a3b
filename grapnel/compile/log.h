/// GRAPNEL_LOG=compile,backward: what the compiler decides, as lines on the standard error output.
#pragma once

#include <string>

namespace grapnel::compiler::log {

enum class Topic { compile, backward };
bool enabled(Topic topic);
void write(const std::string& line);

/// The text is made only when somebody asked for it.
template <class Text>
void compile(Text&& text) {
  if (enabled(Topic::compile)) write("grapnel compile: " + text());
}

}  // namespace grapnel::compiler::log
