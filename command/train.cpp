/// grapnel train: checks what it was asked for, and trains here or starts ranks that do.
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "command/commands.h"
#include "command/process.h"
#include "command/stop.h"
#include "command/trainer.h"
#include "command/words.h"

namespace command {

using namespace grapnel;

namespace {

/// The words that start one rank: what the user wrote, without what is settled before ranks start.
std::vector<std::string> words_for_ranks(const TrainOptions& o) {
  std::vector<std::string> words = {"mpirun",
                                    "-np",
                                    std::to_string(o.ranks),
                                    "--oversubscribe",
                                    "--bind-to",
                                    "none",
                                    "--mca",
                                    "btl_vader_single_copy_mechanism",
                                    "none"};
  if (geteuid() == 0) words.push_back("--allow-run-as-root");
  std::string hooks;
  for (const std::string& hook : o.hooks) hooks += (hooks.empty() ? "" : ",") + hook;
  const bool terminal = o.progress == "auto" && isatty(STDOUT_FILENO);
  const auto add = [&](std::initializer_list<std::string> more) {
    words.insert(words.end(), more);
  };
  add({this_program(), "train", "--model", o.model, "--mode", o.mode, "--precision", o.precision,
       "--hooks", hooks, "--compress", o.compress});
  add({"--epochs", std::to_string(o.epochs), "--steps", std::to_string(o.steps), "--batch",
       std::to_string(o.batch), "--rate", str(o.rate)});
  add({"--seed", std::to_string(o.seed), "--ranks", std::to_string(o.ranks), "--threads",
       std::to_string(o.threads), "--run", o.folder.string()});
  add({"--save-every", std::to_string(o.save_every), "--progress",
       terminal               ? "bar"
       : o.progress == "auto" ? "lines"
                              : o.progress});
  if (!o.data.empty()) add({"--data", o.data.string()});
  if (o.resume) words.push_back("--resume");
  return words;
}

int start_ranks(const TrainOptions& options) {
  if (!options.resume)
    RunFolder::open(options.folder,
                    options.overwrite ? RunFolder::Open::overwrite : RunFolder::Open::create);
  const int status = run_in_foreground(words_for_ranks(options), SIGUSR1);
  check(status != ProcessResult::not_found,
        "mpirun, which starts ranks, is not installed. On Debian: apt-get install openmpi-bin");
  return stop::requested() != 0 ? stop::requested() : status;
}

/// Steps that a finished run has if the flags ask for more of it, and as the options then are;
/// nothing if it is not finished.
struct Extended {
  int64_t before, after;
};
std::optional<Extended> extended(const RunFolder& folder, const TrainOptions& given,
                                 const CLI::App& flags, TrainOptions& options) {
  const Json& info = folder.info();
  if (info.at("status") != "done") return {};
  const auto before = info.at("steps").get<int64_t>();
  const int64_t per_epoch = info.at("data").at("train").get<int64_t>() / options.batch;
  if (flags.count("--steps")) options.steps = given.steps, options.epochs = given.epochs;
  else if (flags.count("--epochs")) options.steps = 0, options.epochs = given.epochs;
  return Extended{before, options.steps > 0 ? options.steps : options.epochs * per_epoch};
}

/// Flags that belong to the run have to be what they were, or be left out; only a finished run may
/// be made longer. Nothing if there is nothing left to do.
std::optional<TrainOptions> resumed(const TrainOptions& given, const CLI::App& flags) {
  const RunFolder folder = RunFolder::read(given.folder);
  TrainOptions options = given;
  std::optional<Extended> longer;
  Json before;
  try {
    from_json(folder.info().at("options"), options);
    before = options;
    check(options.batch > 0 && options.ranks > 0, "a batch of ", options.batch, " for ",
          options.ranks, " ranks");
    longer = extended(folder, given, flags, options);
  } catch (const std::exception& e) {
    fail(folder.file("run.json").string(), ": is damaged: ", e.what());
  }
  const Json now = given;
  for (const auto& [name, value] : before.items()) {
    if (longer && (name == "epochs" || name == "steps")) continue;
    check_flag(flags.count("--" + name) == 0 || now[name] == value, "--", name, " ",
               now[name].dump(), " is not what the run in ", given.folder.string(),
               " was started with, ", value.dump(),
               ".\nLeave the flag out to go on, or train into another folder.");
  }
  if (!longer || longer->after > longer->before) return options;
  std::printf("The run in %s is finished already, after %lld steps; nothing was changed.\n"
              "To train longer: grapnel train --resume --run %s --epochs N, with more epochs than "
              "before.\n",
              given.folder.c_str(), static_cast<long long>(longer->before),
              shell_quoted(given.folder).c_str());
  return {};
}

int train(TrainOptions options, const CLI::App& flags) {
  check_flag(!(options.resume && options.overwrite),
             "--resume and --overwrite contradict each other.");
  if (options.resume) {
    const std::optional<TrainOptions> goes_on = resumed(options, flags);
    if (!goes_on) return 0;
    options = *goes_on;
  }
  check_flag(options.batch % options.ranks == 0, "--batch ", options.batch,
             " cannot be shared evenly by ", options.ranks, " ranks.");
  const bool is_rank = dist::launched_by_mpi();
  if (options.ranks > 1 && !is_rank) return start_ranks(options);
  stop::watch_signals();  // before threads start: Note [Signals on a thread of their own] in stop.h
  // Ranks share the machine.
  if (options.threads > 0) set_num_threads(options.threads);
  else if (is_rank) set_num_threads(std::max(1, get_num_threads() / options.ranks));
  Trainer trainer(options, is_rank ? dist::init() : dist::single_rank());
  return trainer.run();
}

}  // namespace

Action add_train(CLI::App& app) {
  CLI::App* flags =
      app.add_subcommand("train", "Train a model; everything about the run goes into one folder");
  flags->footer(
      "Ctrl-C saves a checkpoint and ends with status 130; a second one ends at once.\n"
      "Hooks are attached to every parameter, in the order written: histogram, clip=LIMIT,\n"
      "clip-value=LIMIT, noise=DEVIATION, scale=FACTOR; none for none at all.");
  const auto o = std::make_shared<TrainOptions>();
  flags->add_option("--model", o->model, "What to train: mlp and cnn on images, gpt on text")
      ->check(CLI::IsMember({"mlp", "cnn", "gpt"}))
      ->capture_default_str();
  flags
      ->add_option("--mode", o->mode,
                   "Run ops one by one, or compile whole steps; the bits are the same")
      ->check(CLI::IsMember({"eager", "compiled"}))
      ->capture_default_str();
  flags->add_option("--hooks", o->hooks, "Hooks on gradients, separated by commas")
      ->delimiter(',')
      ->check(hook_words())
      ->capture_default_str();
  flags->add_option("--ranks", o->ranks, "Processes that train together; started with mpirun")
      ->check(whole_number(1, 4096))
      ->capture_default_str();
  flags->add_option("--compress", o->compress, "How gradients travel between ranks")
      ->check(CLI::IsMember({"none", "fp16", "bf16", "int8"}))
      ->capture_default_str();
  flags->add_option("--precision", o->precision, "f32 or f64 throughout, or products in bf16")
      ->check(CLI::IsMember({"f32", "f64", "bf16"}))
      ->capture_default_str();
  flags->add_option("--data", o->data,
                    "Folder of Fashion-MNIST, or a file or folder of text for gpt");
  flags->add_option("--epochs", o->epochs, "Times through the data")
      ->check(whole_number(1))
      ->capture_default_str();
  flags->add_option("--steps", o->steps, "Stop after so many steps (0: all epochs)")
      ->check(whole_number(0))
      ->capture_default_str();
  flags->add_option("--batch", o->batch, "Examples per step, over all ranks")
      ->check(whole_number(1))
      ->capture_default_str();
  flags->add_option("--rate", o->rate, "Highest learning rate (AdamW, warm-up and cosine)")
      ->check(number_above_zero())
      ->capture_default_str();
  flags->add_option("--seed", o->seed, "Of parameters and order; equal seeds give equal bits")
      ->capture_default_str();
  flags->add_option("--threads", o->threads, "Threads per rank (0: all cores, shared by the ranks)")
      ->check(whole_number(0))
      ->capture_default_str();
  flags
      ->add_option("--run", o->folder,
                   "Folder of the run: metrics, histograms, timeline, graph, checkpoint")
      ->capture_default_str();
  flags->add_flag("--resume", o->resume, "Go on with the run in that folder, with its flags");
  flags->add_flag("--overwrite", o->overwrite, "Replace the run in that folder");
  flags->add_option("--save-every", o->save_every, "Steps between checkpoints (0: only at the end)")
      ->check(whole_number(0))
      ->capture_default_str();
  flags->add_option("--progress", o->progress, "A bar, lines, none; auto is a bar on a terminal")
      ->check(CLI::IsMember({"auto", "bar", "lines", "none"}))
      ->capture_default_str();
  return [o, flags] { return train(*o, *flags); };
}

}  // namespace command
