/// Programs that the command starts: Graphviz, mpirun, itself.
#pragma once

#include <string>
#include <vector>

namespace command {

struct ProcessResult {
  static constexpr int not_found = -1;
  int status = 0;  ///< as a shell has it: 128 and the signal for one that was killed
  std::string output, error;
};

/// Runs a program to its end with `input` as its standard input, and collects what it prints.
ProcessResult run_process(const std::vector<std::string>& words, const std::string& input);

/// Runs a program on our own standard output. It is in a process group of its own, so a Ctrl-C
/// reaches only us; `pass_on` is the signal that it gets for the first one. The second one ends it.
/// Returns its status.
int run_in_foreground(const std::vector<std::string>& words, int pass_on);

/// The file of this program.
std::string this_program();

}  // namespace command
