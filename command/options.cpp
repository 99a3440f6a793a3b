#include "command/options.h"

namespace command {

void to_json(nlohmann::json& out, const TrainOptions& o) {
  out = {{"model", o.model},   {"mode", o.mode},         {"precision", o.precision},
         {"hooks", o.hooks},   {"compress", o.compress}, {"data", o.data.string()},
         {"epochs", o.epochs}, {"steps", o.steps},       {"batch", o.batch},
         {"rate", o.rate},     {"seed", o.seed},         {"ranks", o.ranks}};
}

void from_json(const nlohmann::json& in, TrainOptions& o) {
  in.at("model").get_to(o.model);
  in.at("mode").get_to(o.mode);
  in.at("precision").get_to(o.precision);
  in.at("hooks").get_to(o.hooks);
  in.at("compress").get_to(o.compress);
  o.data = in.at("data").get<std::string>();
  in.at("epochs").get_to(o.epochs);
  in.at("steps").get_to(o.steps);
  in.at("batch").get_to(o.batch);
  in.at("rate").get_to(o.rate);
  in.at("seed").get_to(o.seed);
  in.at("ranks").get_to(o.ranks);
}

}  // namespace command
