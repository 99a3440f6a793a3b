/// grapnel: trains models, draws their graphs, and makes pages of what happened. Start reading at
/// commands.h.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "command/commands.h"
#include "command/stop.h"
#include "command/version.h"
#include "command/words.h"
#include "grapnel/base/place.h"
#include "grapnel/base/warn.h"

namespace {

/// What was printed has to arrive; a reader that is gone, or a full disk, is a failure.
int finish(int status) {
  const bool arrived = std::fflush(stdout) == 0 && !std::ferror(stdout);
  if (arrived || status != 0) return status;
  std::fprintf(stderr,
               "grapnel: the output could not be written; nobody reads it, or the disk is full.\n");
  return command::stop::closed_output;
}

std::string joined(const std::vector<std::string>& names, const char* between) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : between) + name;
  return all;
}

/// A first word that is no command, or none; the parser would only say that there is none.
void check_command(const CLI::App& app, int argc, char** argv) {
  const std::string first = argc < 2 ? "" : argv[1], flag = first.substr(0, first.find('='));
  const bool is_flag = flag.starts_with('-');
  if (is_flag && app.get_option_no_throw(flag) != nullptr) return;
  std::vector<std::string> names, owners;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
    if (is_flag && command->get_option_no_throw(flag) != nullptr)
      owners.push_back("'grapnel " + command->get_name() + " " + flag + "'");
  }
  if (std::find(names.begin(), names.end(), first) != names.end()) return;
  std::string text = first.empty() ? "a command is missing."
                     : is_flag     ? "a command comes first, before '" + first + "'."
                                   : "there is no command '" + first + "'.";
  if (!owners.empty()) text += " Did you mean " + joined(owners, " or ") + "?";
  if (const std::string meant = is_flag ? "" : command::did_you_mean(first, names); !meant.empty())
    text += " Did you mean '" + meant + "'?";
  command::check_flag(false, text, "\nThe commands are ", joined(names, ", "),
                      "; grapnel --help explains them.");
}

}  // namespace

int main(int argc, char** argv) try {
  command::stop::ignore_closed_pipes();
  CLI::App app{
      "Grapnel trains networks whose gradient hooks compile.\n\n"
      "  grapnel train --model cnn --mode compiled     train on Fashion-MNIST\n"
      "  grapnel report run -o report.html             look at what happened\n"
      "  grapnel graph --model mlp -o graph.svg        draw a step, hooks included\n"
      "  grapnel doctor                                what this build and machine support\n"
      "  grapnel demo                                  all of it, in a few minutes\n\n"
      "grapnel COMMAND --help explains the flags of a command.",
      "grapnel"};
  app.set_version_flag("--version", std::string("grapnel ") + command::version);
  app.require_subcommand(1);
  app.fallthrough(false);
  const std::vector<command::Action> actions = {command::add_train(app), command::add_report(app),
                                                command::add_graph(app), command::add_doctor(app),
                                                command::add_demo(app)};
  check_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return finish(app.exit(e) == 0 ? 0 : 2);
  }
  const auto& chosen = app.get_subcommands([](const CLI::App*) { return true; });
  for (size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]->parsed()) return finish(actions[i]());
  return 2;
} catch (const command::WrongFlag& e) {
  std::fprintf(stderr, "grapnel: %s\n", e.what());
  return 2;
} catch (const std::exception& e) {
  std::fflush(stdout);
  std::fprintf(stderr, "grapnel: %s\n",
               std::string(grapnel::base::without_places(e.what())).c_str());
  return 1;
}
