#include "command/report.h"

#include <cstdio>
#include <map>
#include <set>

#include "command/commands.h"
#include "command/picture.h"
#include "command/resources.h"
#include "command/run_folder.h"
#include "command/sha256.h"
#include "grapnel/base/error.h"
#include "grapnel/io/file.h"

namespace command {

namespace fs = std::filesystem;
using grapnel::check;
using grapnel::fail;

namespace {

/// A curve needs no more points than a screen has columns; longer ones become means of neighbours.
constexpr size_t most_points = 1500;
/// A compiled step has some hundred kilobytes; Graphviz takes minutes for more than this.
constexpr uint64_t most_drawing_bytes = uint64_t{16} << 20;

/// What the page shows of an object, each member of the kind that the page expects: a file of
/// somebody else's run may hold anything.
class Members {
 public:
  Members(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    check(object.is_object(), where_, ": is damaged: an object is expected.");
  }
  Members& text(const char* name) { return put(name, "a text", &Json::is_string); }
  Members& number(const char* name) { return put(name, "a number", &Json::is_number); }
  Members& truth(const char* name) { return put(name, "a truth value", &Json::is_boolean); }
  Members& put(const char* name, Json value) {
    out_[name] = std::move(value);
    return *this;
  }
  bool has(const char* name) const { return object_.contains(name) && !object_[name].is_null(); }
  Members of(const char* name) const {
    check(has(name), where_, ": is damaged: ", name, " is missing.");
    return Members(object_[name], where_ + ", " + name);
  }
  const Json& operator[](const char* name) const {
    check(object_.contains(name), where_, ": is damaged: ", name, " is missing.");
    return object_[name];
  }
  void refuse(const char* name, const char* expected) const {
    fail(where_, ": is damaged: ", name, " is not ", expected, ".");
  }
  Json take() { return std::move(out_); }

 private:
  Members& put(const char* name, const char* kind, bool (Json::*is)() const noexcept) {
    if (!((*this)[name].*is)()) refuse(name, kind);
    return put(name, object_[name]);
  }
  const Json& object_;
  std::string where_;
  Json out_ = Json::object();
};

Json results_of(const Members& info) {
  if (!info.has("results")) return Json::object();
  Members results = info.of("results");
  for (const char* name : {"accuracy", "speed", "seconds", "loss"})
    if (results.has(name)) results.number(name);
  if (results.has("weights")) results.text("weights");
  if (results.has("compile")) {
    Members compile = results.of("compile");
    for (const char* name : {"graphs", "kernels", "fused_ops", "breaks"}) compile.number(name);
    results.put("compile", compile.take());
  }
  return results.take();
}

Json info_of(const RunFolder& run) {
  Members info(run.info(), run.file("run.json").string());
  Members options = info.of("options"), data = info.of("data"), model = info.of("model");
  options.text("model").text("mode").text("precision").number("ranks");
  Json hooks = Json::array();
  for (const Json& hook : options["hooks"]) {
    if (!hook.is_string()) options.refuse("hooks", "a list of texts");
    hooks.push_back(hook);
  }
  options.put("hooks", hooks);
  data.text("source").text("unit").truth("generated").number("train");
  model.number("parameters");
  info.text("grapnel").text("status").number("steps");
  info.put("options", options.take()).put("data", data.take()).put("model", model.take());
  info.put("results", results_of(info));
  return info.take();
}

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

/// Counts of a histogram: of its bins, of what lies below and of what lies above.
Json counts_of(const Members& line, size_t expected) {
  const Json& counts = line["counts"];
  constexpr size_t most_bins = 10'000;
  if (!counts.is_array() || counts.size() < 3 || counts.size() > most_bins ||
      (expected != 0 && counts.size() != expected))
    line.refuse("counts", "a histogram like the others of that parameter");
  for (const Json& count : counts)
    if (!count.is_number()) line.refuse("counts", "a list of numbers");
  return counts;
}

Json gradients_of(const RunFolder& run) {
  const std::vector<Json> lines = run.lines("gradients.jsonl");
  Json series = Json::array();
  std::map<std::string, size_t> places;
  for (const Json& object : lines) {
    Members line(object, run.file("gradients.jsonl").string());
    line.text("name").number("low").number("high").number("step");
    const double low = line["low"].get<double>(), high = line["high"].get<double>();
    if (!(low < high && low > -1000 && high < 1000))
      line.refuse("high", "a power of ten above low");
    const auto [place, added] =
        places.try_emplace(line["name"].get<std::string>(), series.size());
    if (added)
      series.push_back({{"name", line["name"]},
                        {"low", line["low"]},
                        {"high", line["high"]},
                        {"step", Json::array()},
                        {"norm", Json::array()},
                        {"counts", Json::array()}});
    Json& s = series[place->second];
    s["counts"].push_back(counts_of(line, added ? 0 : s["counts"][0].size()));
    s["step"].push_back(line["step"]);
    s["norm"].push_back(line.has("norm") ? line.number("norm")["norm"] : Json(nullptr));
  }
  return series;
}

Json timelines_of(const RunFolder& run) {
  Json timelines = Json::array();
  const std::set<std::string> lanes = {"phase", "kernel", "op", "hook", "communication"};
  for (int rank = 0;; ++rank) {
    const std::string name = grapnel::str("timeline-", rank, ".json");
    const Json timeline = run.json(name);
    if (timeline.is_null()) return timelines;
    Members checked(timeline, run.file(name).string());
    Json spans = Json::array();
    for (const Json& object : checked["spans"]) {
      Members span(object, run.file(name).string());
      span.text("lane").text("name").number("begin").number("end").number("step");
      if (!lanes.contains(span["lane"].get<std::string>()))
        span.refuse("lane", "one of those that there are");
      spans.push_back(span.take());
    }
    timelines.push_back(checked.number("rank").put("spans", spans).take());
  }
}

Json accuracies_of(const RunFolder& run, const std::vector<Json>& lines) {
  Json out = Json::array();
  for (const Json& line : lines)
    if (line.contains("accuracy"))
      out.push_back(Members(line, run.file("metrics.jsonl").string())
                        .number("step")
                        .number("accuracy")
                        .take());
  return out;
}

Json data_of(const RunFolder& run) try {
  const std::vector<Json> metrics = run.lines("metrics.jsonl");
  fs::path name = run.path().lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  return {{"name", name.filename().string()},
          {"info", info_of(run)},
          {"curve", curve_of(metrics)},
          {"accuracy", accuracies_of(run, metrics)},
          {"gradients", gradients_of(run)},
          {"timelines", timelines_of(run)}};
} catch (const Json::exception& e) {
  fail(run.path().string(), ": a file of this run is damaged: ", e.what());
}

/// Note [What enters a page]
/// Everything that a page says about runs, names, numbers, messages and drawings, is in one value,
/// and this is the one way in. It becomes the text of an element that no browser takes for a
/// script, and no text can end that element or hide its end: there is no '<' in it. In the page,
/// report.js makes texts and attributes of it, never markup; and should it fail to, the page's
/// policy lets no script run but the two that are the page's own.
std::string for_page(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  return out;
}

void put(std::string& page, std::string_view place, std::string_view content) {
  const size_t at = page.find(place);
  GRAPNEL_ASSERT(at != std::string::npos, "the page has no place for ", place);
  page.replace(at, place.size(), content);
}

/// The drawing of the first run that has one, as Graphviz made it, or why there is none.
void add_drawing(Json& data, const RunFolder& run, const std::string& name) {
  if (data.contains("graph") || !fs::exists(run.file("graph.dot"))) return;
  data["graph"] = name;
  try {
    data["drawing"] = svg_of(grapnel::io::read_text(run.file("graph.dot"), most_drawing_bytes));
  } catch (const grapnel::Error& e) {
    data["drawing_problem"] = e.what();  // a page without it is better than none
  }
}

/// As the browser sees it between the tags; see report.html.
std::string script_text(std::string_view script) { return grapnel::str('\n', script, '\n'); }

}  // namespace

void write_report(const std::vector<fs::path>& runs, const fs::path& output) {
  Json data = {{"runs", Json::array()}};
  for (const fs::path& path : runs) {
    const RunFolder run = RunFolder::read(path);
    data["runs"].push_back(data_of(run));
    add_drawing(data, run, data["runs"].back()["name"]);
  }
  std::string page(resources::page());
  put(page, "/*scripts*/",
      policy_hash(script_text(resources::library())) + " " +
          policy_hash(script_text(resources::script())));
  put(page, "/*style*/", resources::style());
  put(page, "/*library*/", resources::library());
  put(page, "/*script*/", resources::script());
  put(page, "/*data*/", for_page(data));
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
