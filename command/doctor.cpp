/// grapnel doctor: what this build and this machine support, and what to do about what is missing.
#include <sys/utsname.h>

#include <cstdio>
#include <thread>

#include "command/commands.h"
#include "command/process.h"
#include "command/version.h"
#include "grapnel/base/cpu.h"
#include "grapnel/codegen/disk_cache.h"
#include "grapnel/codegen/llvm_module.h"
#include "grapnel/grapnel.h"

namespace command {

using namespace grapnel;

namespace {

class Findings {
 public:
  void good(const std::string& what, const std::string& found) {
    std::printf("  ok       %-18s %s\n", what.c_str(), found.c_str());
  }
  /// Works, with less.
  void less(const std::string& what, const std::string& found) {
    std::printf("  missing  %-18s %s\n", what.c_str(), found.c_str());
  }
  void bad(const std::string& what, const std::string& found) {
    std::printf("  broken   %-18s %s\n", what.c_str(), found.c_str());
    broken_ = true;
  }
  bool broken() const { return broken_; }

 private:
  bool broken_ = false;
};

/// The first line of what a program says about itself.
std::string first_line(const std::vector<std::string>& words) {
  const ProcessResult result = run_process(words, "");
  if (result.status == ProcessResult::not_found) return "";
  const std::string text = result.output.empty() ? result.error : result.output;
  return text.substr(0, text.find('\n'));
}

/// A compiled function has the bits of the plain one, hooks included.
void check_arithmetic(Findings& findings) {
  const auto gradient = [](bool compiled) {
    Tensor w = linspace(-1, 1, 257).requires_grad_();
    w.register_hook([](const Tensor& g) { return g.clamp(-0.5, 0.5); });
    const auto body = [&] { (w * w).sigmoid().sum().backward(); };
    if (compiled) compile(body)();
    else body();
    return w.grad();
  };
  if (gradient(true).equal(gradient(false)))
    findings.good("arithmetic", "eager and compiled gradients have the same bits");
  else
    findings.bad(
        "arithmetic",
        "eager and compiled gradients differ; please report this with the output of this command");
}

int examine() {
  utsname system = {};
  uname(&system);
  std::printf("grapnel %s on %s %s\n\n", version, system.sysname, system.machine);
  Findings findings;
  findings.good("processor", str(std::thread::hardware_concurrency(), " cores, kernels for ",
                                 base::name_of(base::cpu_isa())));
  findings.good("threads", str(get_num_threads(), " (set_num_threads, --threads)"));
  check_arithmetic(findings);
  const codegen::LlvmModule& llvm = codegen::llvm_module();
  const std::string cache = codegen::cache_folder();
  if (llvm.api)
    findings.good("machine code", "LLVM makes kernels, " + (cache.empty() ? "which are not cached"
                                                                          : "cached in " + cache));
  else findings.less("machine code", "compiled graphs run interpreted: " + llvm.problem);
  const std::string mpi = first_line({"mpirun", "--version"});
  if (mpi.empty())
    findings.less("several ranks",
                  "mpirun is not installed. On Debian: apt-get install openmpi-bin");
  else findings.good("several ranks", mpi);
  const std::string dot = first_line({"dot", "-V"});
  if (dot.empty())
    findings.less("graphs", "Graphviz is not installed. On Debian: apt-get install graphviz");
  else findings.good("graphs", dot);
  if (std::filesystem::is_directory(data::FashionMNIST::default_root()))
    findings.good("Fashion-MNIST", data::FashionMNIST::default_root().string());
  else
    findings.less("Fashion-MNIST",
                  "generated images stand in. On Debian: apt-get install dataset-fashion-mnist");
  findings.less("GPU", "not supported yet; everything runs on the processor");
  std::printf("\n%s\n",
              findings.broken() ? "Something is broken." : "Everything that is there works.");
  return findings.broken() ? 1 : 0;
}

}  // namespace

Action add_doctor(CLI::App& app) {
  app.add_subcommand("doctor",
                     "Say what this build and machine support, and what to install for the rest");
  return [] { return examine(); };
}

}  // namespace command
