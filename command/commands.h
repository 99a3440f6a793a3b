/// The subcommands of `grapnel`. Each adds its flags to the parser and returns what to run when it
/// was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace command {

/// Returns the exit status.
using Action = std::function<int()>;

Action add_train(CLI::App& app);
Action add_report(CLI::App& app);
Action add_graph(CLI::App& app);
Action add_doctor(CLI::App& app);
Action add_demo(CLI::App& app);

}  // namespace command
