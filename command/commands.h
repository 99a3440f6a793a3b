/// The subcommands of `grapnel`. Each adds its flags to the parser and returns what to run when it
/// was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>

namespace command {

/// Returns the exit status.
using Action = std::function<int()>;

/// What the numbers of flags may be. Those of the parser print limits of 300 digits, and let NaN
/// pass.
CLI::Validator whole_number(int64_t low, int64_t high = 1'000'000'000);
CLI::Validator number_above_zero();
CLI::Validator percent();
/// Words that HookSpec knows, or "none".
CLI::Validator hook_words();

Action add_train(CLI::App& app);
Action add_report(CLI::App& app);
Action add_graph(CLI::App& app);
Action add_doctor(CLI::App& app);
Action add_demo(CLI::App& app);

}  // namespace command
