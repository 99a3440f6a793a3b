#include "command/trainer.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <numbers>

#include "command/progress.h"
#include "command/stop.h"
#include "command/version.h"
#include "command/words.h"

namespace command {

using namespace grapnel;

namespace {

/// Steps that the probe looks at, one after the other.
constexpr int64_t looks = 3;

Progress::Style style_of(const std::string& asked, bool first) {
  if (!first || asked == "none") return Progress::Style::none;
  if (asked == "auto") return isatty(STDOUT_FILENO) ? Progress::Style::bar : Progress::Style::lines;
  return asked == "bar" ? Progress::Style::bar : Progress::Style::lines;
}

dist::Future<Tensor> send(const std::string& how, dist::GradBucket& bucket) {
  if (how == "fp16") return dist::hooks::fp16_compress(bucket);
  if (how == "bf16") return dist::hooks::bf16_compress(bucket);
  if (how == "int8") return dist::hooks::quantize_per_channel(bucket);
  return dist::hooks::allreduce(bucket);
}

}  // namespace

uint64_t digest(nn::Module& module) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const Tensor& p : module.parameters()) {
    const Tensor whole = p.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(whole.data_ptr());
    for (size_t i = 0; i < static_cast<size_t>(whole.numel()) * whole.element_size(); ++i)
      hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return hash;
}

Trainer::Trainer(const TrainOptions& options, dist::ProcessGroup group)
    : options_(options), group_(std::move(group)) {}

Trainer::~Trainer() = default;

void Trainer::build(const ModelSizes& sizes) {
  manual_seed(options_.seed);
  model_ = make_model(options_.model, sizes);
  if (options_.precision == "f64") model_->to(kFloat64);
  std::vector<HookSpec> hooks;
  for (const std::string& text : options_.hooks)
    if (text != "none") hooks.push_back(HookSpec::parse(text));
  watch_ = std::make_unique<Watch>(*model_, hooks, probe_);
  for (const auto& p : model_->named_parameters()) probe_.name(p.value(), p.key());
  if (group_.size() > 1) {
    parallel_ = std::make_unique<dist::DistributedDataParallel<NetImpl>>(model_, group_);
    parallel_->register_comm_hook([this](dist::GradBucket& bucket) {
      const bool look = probe_.on();
      const double start = Probe::now();
      const std::string name =
          str("bucket ", bucket.index(), ", ", bucket.buffer().numel(), " numbers");
      return send(options_.compress, bucket).then([this, look, start, name](const Tensor& mean) {
        if (look) probe_.add("communication", name, start, Probe::now());
        return mean;
      });
    });
  }
  optimizer_ =
      std::make_unique<optim::AdamW>(model_->parameters(), optim::AdamWOptions(options_.rate));
  if (options_.mode == "compiled") {
    auto compiled = compile([this](const Tensor& x, const Tensor& y) { return train_step(x, y); });
    stats_ = [compiled] { return compiled.stats(); };
    step_ = [compiled](const Tensor& x, const Tensor& y) mutable { return compiled(x, y); };
  } else {
    step_ = [this](const Tensor& x, const Tensor& y) { return train_step(x, y); };
  }
}

Tensor Trainer::forward(const Tensor& x) {
  return parallel_ && model_->is_training() ? (*parallel_)(x) : nn::call(*model_, x);
}

Tensor Trainer::train_step(const Tensor& x, const Tensor& y) {
  probe_.phase("forward");
  optimizer_->zero_grad();
  Tensor loss;
  {
    std::optional<Autocast> narrow;
    if (options_.precision == "bf16") narrow.emplace(kBFloat16);
    const Tensor logits = forward(x);
    loss = cross_entropy(logits.flatten(0, -2), y.flatten());
  }
  probe_.phase("backward");
  loss.backward();
  probe_.phase("optimizer");
  optimizer_->step();
  return loss.detach();
}

/// Up over the first tenth of the steps, then down to zero like a cosine.
double Trainer::rate_at(int64_t step) const {
  const double progress = static_cast<double>(step) / static_cast<double>(total_steps_);
  if (progress < 0.1) return options_.rate * progress / 0.1;
  return options_.rate * 0.5 * (1 + std::cos(std::numbers::pi * (progress - 0.1) / 0.9));
}

/// All ranks draw the same order, and each takes its share of every batch.
Trainer::Batch Trainer::batch_at(int64_t step) {
  const int64_t epoch = step / steps_per_epoch_;
  if (epoch != order_epoch_) {
    order_ = randperm(data_.train_count(),
                      Generator(data::mix_seed(options_.seed, static_cast<uint64_t>(epoch))));
    order_epoch_ = epoch;
  }
  const int64_t share = options_.batch / group_.size(),
                begin = step % steps_per_epoch_ * options_.batch + group_.rank() * share;
  const Tensor rows = order_.narrow(0, begin, share);
  Tensor x = Data::prepare(data_.train_x.index_select(0, rows));
  if (options_.precision == "f64" && x.is_floating_point()) x = x.to(kFloat64);
  return {x, data_.train_y.index_select(0, rows)};
}

void Trainer::open_folder() {
  state_.add("model", *model_)
      .add("optimizer", *optimizer_)
      .add("random", default_generator())
      .add("step", step_number_);
  state_.add("seconds", seconds_);
  const std::filesystem::path checkpoint = options_.folder / "checkpoint.safetensors";
  if (options_.resume && !state_.resume(checkpoint) && first())
    std::printf("resume There is no checkpoint in %s yet, so training begins at the beginning.\n",
                options_.folder.c_str());
  if (!first()) return;
  folder_ = RunFolder::open(options_.folder, options_.resume      ? RunFolder::Open::resume
                                             : options_.overwrite ? RunFolder::Open::overwrite
                                                                  : RunFolder::Open::create);
  folder_->cut("metrics.jsonl", step_number_);
  folder_->cut("gradients.jsonl", step_number_);
  take_up_metrics();
  metrics_.emplace(folder_->file("metrics.jsonl"));
  gradients_.emplace(folder_->file("gradients.jsonl"));
  const nn::ModuleSummary summary = nn::summary(*model_);
  Json layers = Json::array();
  for (const auto& row : summary.rows)
    if (!row.path.empty())
      layers.push_back({{"name", row.path}, {"layer", row.layer}, {"parameters", row.parameters}});
  folder_->update({{"format", RunFolder::format},
                   {"grapnel", version},
                   {"options", options_},
                   {"data",
                    {{"source", data_.source},
                     {"generated", data_.generated},
                     {"unit", data_.unit},
                     {"train", data_.train_count()},
                     {"test", data_.test_count()}}},
                   {"model", {{"parameters", summary.parameters}, {"layers", layers}}},
                   {"threads", get_num_threads()},
                   {"steps", total_steps_},
                   {"status", "running"}});
  std::printf("data   %s: %lld %s to train, %lld to test\n", data_.source.c_str(),
              static_cast<long long>(data_.train_count()), data_.unit.c_str(),
              static_cast<long long>(data_.test_count()));
  if (data_.generated && !is_text_model(options_.model))
    std::printf(
        "       Fashion-MNIST is not installed, so generated images stand in for it.\n"
        "       The real ones: apt-get install dataset-fashion-mnist\n");
  std::printf("model  %s, %lld parameters, %s, %s, batches of %lld, %d thread%s, %d rank%s\n",
              options_.model.c_str(), static_cast<long long>(summary.parameters),
              options_.mode.c_str(), options_.precision.c_str(),
              static_cast<long long>(options_.batch), get_num_threads(),
              get_num_threads() == 1 ? "" : "s", group_.size(), group_.size() == 1 ? "" : "s");
  std::fflush(stdout);
}

/// What was last measured before the checkpoint.
void Trainer::take_up_metrics() {
  for (const Json& line : folder_->lines("metrics.jsonl")) {
    // What is no number was none: JSON has no NaN.
    const auto number = [&](const char* name) {
      return line[name].is_number() ? line[name].get<double>() : std::nan("");
    };
    if (line.contains("loss")) loss_ = number("loss");
    if (!line.contains("accuracy")) continue;
    accuracy_ = number("accuracy");
    tested_at_ = line.value("step", int64_t{-1});
  }
}

int Trainer::run() {
  data_ = is_text_model(options_.model) ? load_text(options_.data, ModelSizes().block)
                                        : load_images(options_.data);
  check(options_.batch % group_.size() == 0, "a batch of ", options_.batch,
        " cannot be shared evenly by ", group_.size(), " ranks.");
  check(options_.batch <= data_.train_count(), "a batch of ", options_.batch, " is more than the ",
        data_.train_count(), " ", data_.unit, " there are.");
  steps_per_epoch_ = data_.train_count() / options_.batch;
  total_steps_ = options_.steps > 0 ? options_.steps : options_.epochs * steps_per_epoch_;
  gather_every_ = std::max<int64_t>(1, total_steps_ / 60);
  look_at_ = std::min<int64_t>(total_steps_ / 2, 300);
  build(data_.sizes);
  open_folder();
  while (step_number_ < total_steps_) {
    train_epoch(step_number_ / steps_per_epoch_);
    if (stopping_) break;
    measure();
  }
  // A run that was killed after its last step has not been tested.
  if (!stopping_ && tested_at_ != step_number_) measure();
  save();
  write_results();
  return stopping_ ? stop::requested() : 0;
}

void Trainer::measure() {
  if (!first()) return;
  accuracy_ = test();
  tested_at_ = step_number_;
  metrics_->write({{"step", step_number_}, {"accuracy", accuracy_}});
}

void Trainer::train_epoch(int64_t epoch) {
  const int64_t begin = epoch * steps_per_epoch_,
                end = std::min(begin + steps_per_epoch_, total_steps_);
  const int64_t epochs = (total_steps_ + steps_per_epoch_ - 1) / steps_per_epoch_;
  Progress progress(str("epoch ", epoch + 1, "/", epochs), (step_number_ - begin) * options_.batch,
                    (end - begin) * options_.batch, data_.unit,
                    style_of(options_.progress, first()));
  double mean = 0;
  int64_t seen = 0;
  while (step_number_ < end) {
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(rate_at(step_number_));
    watch_->set_gathering(step_number_ % gather_every_ == 0);
    const bool look = step_number_ >= look_at_ && step_number_ < look_at_ + looks;
    const double start = Probe::now();
    const Batch batch = batch_at(step_number_);
    if (look) {
      probe_.name(batch.x, "input"), probe_.name(batch.y, "target");
      probe_.begin(step_number_);
    }
    const double loss = step_(batch.x, batch.y).item<double>();
    if (look) probe_.end();
    const double took = (Probe::now() - start) / 1e6;
    seconds_ += took;
    ++step_number_;
    after_step(loss);
    mean += (loss - mean) / static_cast<double>(++seen);
    char note[32];
    std::snprintf(note, sizeof note, "loss %.3f", mean);
    progress.update((step_number_ - begin) * options_.batch, note);
    if (stop_together()) return;
    if (options_.save_every > 0 && step_number_ % options_.save_every == 0) save();
  }
}

void Trainer::after_step(double loss) {
  loss_ = loss;
  // Every rank reads its own, so that nothing piles up.
  const std::vector<Json> histograms = watch_->histograms().take(step_number_);
  if (!first()) return;
  metrics_->write({{"step", step_number_},
                   {"loss", std::isfinite(loss) ? Json(loss) : Json(nullptr)},
                   {"rate", rate_at(step_number_ - 1)}});
  for (const Json& h : histograms) gradients_->write(h);
}

/// Whether somebody asked any rank to stop. All ranks stop after the same step.
bool Trainer::stop_together() {
  if (group_.size() == 1) return stopping_ = stop::requested() != 0;
  if (step_number_ % 16 != 0) return false;  // asking costs a message
  Tensor asked = full({1}, stop::requested() != 0 ? 1.0 : 0.0);
  group_.channel("stop").all_reduce(asked).wait();
  if (asked.item<double>() == 0) return false;
  stop::request(stop::interrupted);
  return stopping_ = true;
}

double Trainer::test() {
  const NoGradGuard no_grad;
  model_->eval();
  int64_t right = 0, seen = 0;
  for (int64_t begin = 0; begin < data_.test_count(); begin += 500) {
    const int64_t size = std::min<int64_t>(500, data_.test_count() - begin);
    Tensor x = Data::prepare(data_.test_x.narrow(0, begin, size));
    if (options_.precision == "f64" && x.is_floating_point()) x = x.to(kFloat64);
    const Tensor y = data_.test_y.narrow(0, begin, size);
    right += nn::call(*model_, x).argmax(-1).eq(y).sum().item<int64_t>();
    seen += y.numel();
  }
  model_->train();
  return static_cast<double>(right) / static_cast<double>(seen);
}

void Trainer::save() {
  if (!first()) return;
  metrics_->flush(), gradients_->flush();
  state_.save(folder_->file("checkpoint.safetensors"));
}

void Trainer::write_results() {
  Json spans = Json::array();
  for (const Span& s : probe_.spans())
    spans.push_back(
        {{"lane", s.lane}, {"name", s.name}, {"begin", s.begin}, {"end", s.end}, {"step", s.step}});
  if (!spans.empty()) {
    RunFolder mine = first() ? *folder_ : RunFolder::read(options_.folder);
    mine.write(str("timeline-", group_.rank(), ".json"),
               Json({{"rank", group_.rank()}, {"spans", spans}}).dump() + "\n");
  }
  if (!first()) return;
  if (!probe_.picture().empty()) folder_->write("graph.dot", probe_.picture().dot());
  char weights[24];
  std::snprintf(weights, sizeof weights, "%016llx",
                static_cast<unsigned long long>(digest(*model_)));
  const double speed =
      seconds_ > 0 ? static_cast<double>(step_number_ * options_.batch) / seconds_ : 0;
  Json results = {{"step", step_number_},
                  {"seconds", seconds_},
                  {"speed", speed},
                  {"loss", loss_},
                  {"weights", weights}};
  if (!stopping_) results["accuracy"] = accuracy_;
  if (stats_) {
    const CompileStats s = stats_();
    results["compile"] = {{"graphs", s.graphs},
                          {"kernels", s.kernels},
                          {"fused_ops", s.fused_calls},
                          {"breaks", s.breaks},
                          {"ms", s.compile_ms}};
  }
  folder_->update({{"status", stopping_ ? "stopped" : "done"}, {"results", results}});
  if (stopping_) {
    std::fprintf(
        stderr,
        "grapnel: stopped after step %lld of %lld; everything is saved. Go on with: grapnel train "
        "--resume --run %s\n",
        static_cast<long long>(step_number_), static_cast<long long>(total_steps_),
        shell_quoted(options_.folder).c_str());
    return;
  }
  std::printf(
      "done   accuracy %.2f %%, %.0f %s/s, weights %s\n       grapnel report %s -o report.html\n",
      100 * accuracy_, speed, data_.unit.c_str(), weights,
      shell_quoted(options_.folder).c_str());
}

void Trainer::step_once(const Data& data) {
  data_ = data;
  total_steps_ = 2, steps_per_epoch_ = data.train_count() / options_.batch;
  build(data.sizes);
  watch_->set_gathering(true);
  const Batch batch = batch_at(0);
  probe_.name(batch.x, "input"), probe_.name(batch.y, "target");
  probe_.begin(0);
  step_(batch.x, batch.y);
  probe_.end();
}

}  // namespace command
