/// What `grapnel train` is asked for: flags on the command line, an object in run.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace command {

struct TrainOptions {
  std::string model = "cnn";
  std::string mode = "eager";
  std::string precision = "f32";
  std::vector<std::string> hooks = {"histogram", "clip=1"};
  std::string compress = "none";  ///< what travels between ranks
  std::filesystem::path data;
  int64_t epochs = 2;
  int64_t steps = 0;  ///< stop after so many, 0: all epochs
  int64_t batch = 64;
  double rate = 2e-3;
  uint64_t seed = 1;
  int ranks = 1;

  // Not part of the run: they may differ when it goes on.
  std::filesystem::path folder = "run";
  bool resume = false, overwrite = false;
  int64_t save_every = 500;
  int threads = 0;
  std::string progress = "auto";
};

void to_json(nlohmann::json& out, const TrainOptions& options);
void from_json(const nlohmann::json& in, TrainOptions& options);

}  // namespace command
