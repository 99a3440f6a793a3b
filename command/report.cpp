#include "command/report.h"

#include <cstdio>

#include "command/commands.h"
#include "command/picture.h"
#include "command/resources.h"
#include "command/run_folder.h"
#include "grapnel/base/error.h"
#include "grapnel/io/file.h"

namespace command {

namespace fs = std::filesystem;
using grapnel::check;
using grapnel::fail;

namespace {

/// A curve needs no more points than a screen has columns; longer ones become means of neighbours.
constexpr size_t most_points = 1500;

Json curve_of(const std::vector<Json>& lines) {
  std::vector<double> steps, losses, rates;
  for (const Json& line : lines)
    if (line.contains("loss") && line["loss"].is_number()) {
      steps.push_back(line.at("step").get<double>());
      losses.push_back(line["loss"].get<double>());
      rates.push_back(line.value("rate", 0.0));
    }
  const size_t width = (steps.size() + most_points - 1) / most_points;
  Json curve = {{"step", Json::array()}, {"loss", Json::array()}, {"rate", Json::array()}};
  for (size_t begin = 0; begin < steps.size(); begin += std::max<size_t>(width, 1)) {
    const size_t end = std::min(begin + std::max<size_t>(width, 1), steps.size());
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += losses[i];
    curve["step"].push_back(steps[end - 1]);
    curve["loss"].push_back(sum / static_cast<double>(end - begin));
    curve["rate"].push_back(rates[end - 1]);
  }
  return curve;
}

Json gradients_of(const std::vector<Json>& lines) {
  Json series = Json::array();
  std::map<std::string, size_t> places;
  for (const Json& line : lines) {
    const std::string name = line.at("name");
    const auto [place, added] = places.try_emplace(name, series.size());
    if (added)
      series.push_back({{"name", name},
                        {"low", line.at("low")},
                        {"high", line.at("high")},
                        {"step", Json::array()},
                        {"norm", Json::array()},
                        {"counts", Json::array()}});
    Json& s = series[place->second];
    s["step"].push_back(line.at("step"));
    s["norm"].push_back(line.at("norm"));
    s["counts"].push_back(line.at("counts"));
  }
  return series;
}

Json timelines_of(const RunFolder& run) {
  Json timelines = Json::array();
  for (int rank = 0;; ++rank) {
    const Json timeline = run.json(grapnel::str("timeline-", rank, ".json"));
    if (timeline.is_null()) return timelines;
    timelines.push_back(timeline);
  }
}

Json accuracies_of(const std::vector<Json>& lines) {
  Json out = Json::array();
  for (const Json& line : lines)
    if (line.contains("accuracy")) out.push_back(line);
  return out;
}

Json data_of(const RunFolder& run) try {
  const std::vector<Json> metrics = run.lines("metrics.jsonl");
  fs::path name = run.path().lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  return {{"name", name.filename().string()},
          {"info", run.info()},
          {"curve", curve_of(metrics)},
          {"accuracy", accuracies_of(metrics)},
          {"gradients", gradients_of(run.lines("gradients.jsonl"))},
          {"timelines", timelines_of(run)}};
} catch (const Json::exception& e) {
  fail(run.path().string(), ": a file of this run is damaged: ", e.what());
}

/// Text inside a <script> element must not end it.
std::string for_script(std::string text) {
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  return text;
}

void put(std::string& page, std::string_view place, std::string_view content) {
  const size_t at = page.find(place);
  GRAPNEL_ASSERT(at != std::string::npos, "the page has no place for ", place);
  page.replace(at, place.size(), content);
}

}  // namespace

void write_report(const std::vector<fs::path>& runs, const fs::path& output) {
  Json data = {{"runs", Json::array()}};
  std::string graph;
  for (const fs::path& path : runs) {
    const RunFolder run = RunFolder::read(path);
    data["runs"].push_back(data_of(run));
    if (graph.empty() && fs::exists(run.file("graph.dot"))) {
      data["graph"] = data["runs"].back()["name"];
      try {
        graph = svg_of(grapnel::io::read_text(run.file("graph.dot")));
      } catch (const grapnel::Error& e) {
        graph = grapnel::str("<p class=\"absent\">", e.what(),
                             "</p>");  // a page without it is better than none
      }
    }
  }
  std::string page(resources::page());
  put(page, "/*style*/", resources::style());
  put(page, "/*library*/", resources::library());
  put(page, "/*script*/", resources::script());
  put(page, "<!--graph-->", graph);
  put(page, "/*data*/", for_script(data.dump()));
  grapnel::io::AtomicFile out(output, grapnel::io::Durable::no);
  out.write(page);
  out.commit();
}

Action add_report(CLI::App& app) {
  CLI::App* flags = app.add_subcommand(
      "report", "Turn runs into one page: curves, gradients, graph and timeline");
  struct Options {
    std::vector<fs::path> runs;
    fs::path output = "report.html";
  };
  const auto o = std::make_shared<Options>();
  flags->add_option("RUN", o->runs, "Folders of runs; several are compared")->required();
  flags->add_option("-o,--output", o->output, "The page to write")->capture_default_str();
  return [o] {
    write_report(o->runs, o->output);
    std::printf("wrote %s\n", o->output.c_str());
    return 0;
  };
}

}  // namespace command
