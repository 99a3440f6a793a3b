/// grapnel demo: the same network trained three times (eager, compiled, on two ranks), compared,
/// and shown on one page.
#include <cstdio>

#include "command/commands.h"
#include "command/process.h"
#include "command/progress.h"
#include "command/report.h"
#include "command/run_folder.h"
#include "command/stop.h"
#include "grapnel/base/error.h"
#include "grapnel/io/file.h"

namespace command {

namespace fs = std::filesystem;
using grapnel::check;
using grapnel::str;

namespace {

struct DemoOptions {
  fs::path folder = "demo";
  int64_t epochs = 2, steps = 0;
  double target = 88;  ///< per cent
};

struct Run {
  std::string name, title;
  std::vector<std::string> flags;
};

const std::vector<Run>& runs() {
  static const std::vector<Run> all = {
      {"eager", "Eager: ops run one by one, hooks fire as gradients arrive", {"--mode", "eager"}},
      {"compiled", "Compiled: the whole step is one graph, hooks included", {"--mode", "compiled"}},
      {"two-ranks",
       "Two ranks over MPI: each has half of every batch, gradients travel as they arrive",
       {"--ranks", "2"}}};
  return all;
}

int train(const Run& run, const DemoOptions& options) {
  std::printf("\n%s\n", run.title.c_str());
  std::vector<std::string> words = {this_program(),
                                    "train",
                                    "--model",
                                    "cnn",
                                    "--overwrite",
                                    "--run",
                                    (options.folder / run.name).string()};
  words.insert(words.end(), run.flags.begin(), run.flags.end());
  for (const auto& [flag, value] :
       {std::pair("--epochs", options.epochs), std::pair("--steps", options.steps)})
    words.insert(words.end(), {flag, std::to_string(value)});
  return run_in_foreground(words, SIGINT);
}

/// Losses as they were written, step by step: equal text is equal bits.
std::string losses(const fs::path& run) {
  std::string text;
  for (const Json& line : RunFolder::read(run).lines("metrics.jsonl"))
    if (line.contains("loss")) text += line["loss"].dump() + "\n";
  return text;
}

int demo(const DemoOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Json> results;
  std::vector<fs::path> folders;
  for (const Run& run : runs()) {
    const int status = train(run, options);
    if (status != 0) return stop::requested() != 0 ? stop::requested() : status;
    folders.push_back(options.folder / run.name);
    results.push_back(RunFolder::read(folders.back()).info().at("results"));
  }
  const bool same_losses = losses(folders[0]) == losses(folders[1]);
  const bool same_weights = results[0].at("weights") == results[1].at("weights");
  const fs::path page = options.folder / "report.html";
  write_report(folders, page);

  std::printf("\n%-12s %10s %12s %12s   %s\n", "mode", "accuracy", "images/s", "last loss",
              "weights");
  for (size_t i = 0; i < results.size(); ++i)
    std::printf("%-12s %8.2f %% %12.0f %12.4f   %s\n", runs()[i].name.c_str(),
                100 * results[i].at("accuracy").get<double>(), results[i].at("speed").get<double>(),
                results[i].at("loss").get<double>(),
                results[i].at("weights").get<std::string>().c_str());
  std::printf("\neager and compiled: %s losses in every step, %s weights\n",
              same_losses ? "identical" : "DIFFERENT", same_weights ? "identical" : "DIFFERENT");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("took %s; the report is %s\n", Progress::duration(seconds).c_str(), page.c_str());
  check(same_losses && same_weights,
        "eager and compiled training differ, which they must not; please report this.");
  for (size_t i = 0; i < results.size(); ++i)
    check(100 * results[i].at("accuracy").get<double>() >= options.target, runs()[i].name,
          ": the accuracy is below ", options.target, " %, which this training should reach.");
  return 0;
}

}  // namespace

Action add_demo(CLI::App& app) {
  CLI::App* flags = app.add_subcommand(
      "demo", "Train eager, compiled and on two ranks, compare, and write a report");
  const auto o = std::make_shared<DemoOptions>();
  flags->add_option("-o,--output", o->folder, "Folder for the runs and report.html")
      ->capture_default_str();
  flags->add_option("--epochs", o->epochs, "Times through the data, for each")
      ->check(whole_number(1))
      ->capture_default_str();
  flags->add_option("--steps", o->steps, "Stop each after so many steps (0: all epochs)")
      ->check(whole_number(0))
      ->capture_default_str();
  flags->add_option("--target", o->target, "Accuracy in per cent that each has to reach")
      ->check(percent())
      ->capture_default_str();
  return [o] { return demo(*o); };
}

}  // namespace command
