/// grapnel graph: one training step of a model as a picture.
#include <cstdio>

#include "command/commands.h"
#include "command/trainer.h"
#include "grapnel/io/file.h"

namespace command {

using namespace grapnel;

namespace {

struct GraphOptions {
  TrainOptions train;
  std::string phase = "both", format = "svg";
  bool kernels = false, optimizer = false;
  std::filesystem::path output;
};

int draw(const GraphOptions& options) {
  TrainOptions train = options.train;
  train.mode = "compiled";
  train.batch = 8;
  Trainer trainer(train, dist::single_rank());
  trainer.step_once(few_rows(is_text_model(train.model)));
  Picture::Style style{.phases = {}, .kernels = options.kernels};
  if (options.phase != "backward") style.phases.insert("forward");
  if (options.phase != "forward") style.phases.insert("backward");
  if (options.optimizer) style.phases.insert("optimizer");
  const std::string dot = trainer.probe().picture().dot(style);
  const std::string text = options.format == "dot" ? dot : svg_of(dot);
  if (options.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  io::AtomicFile out(options.output, io::Durable::no);
  out.write(text);
  out.commit();
  std::printf("wrote %s\n", options.output.c_str());
  return 0;
}

}  // namespace

Action add_graph(CLI::App& app) {
  CLI::App* flags = app.add_subcommand(
      "graph", "Draw a training step of a model as SVG: forward, backward and the hooks on it");
  const auto o = std::make_shared<GraphOptions>();
  o->train.model = "mlp";
  o->train.hooks = {"clip=1"};
  flags->add_option("--model", o->train.model, "mlp, cnn or gpt")
      ->check(CLI::IsMember({"mlp", "cnn", "gpt"}))
      ->capture_default_str();
  flags->add_option("--hooks", o->train.hooks, "Hooks on gradients, as for grapnel train")
      ->delimiter(',')
      ->check(hook_words())
      ->capture_default_str();
  flags->add_option("--phase", o->phase, "What to draw")
      ->check(CLI::IsMember({"forward", "backward", "both"}))
      ->capture_default_str();
  flags->add_flag("--kernels", o->kernels, "Put what is fused into one kernel into one box");
  flags->add_flag("--optimizer", o->optimizer, "Draw the optimiser's step as well");
  flags->add_option("--format", o->format, "svg (drawn by Graphviz), or dot for other tools")
      ->check(CLI::IsMember({"svg", "dot"}))
      ->capture_default_str();
  flags->add_option("-o,--output", o->output, "File to write (default: standard output)");
  return [o] { return draw(*o); };
}

}  // namespace command
