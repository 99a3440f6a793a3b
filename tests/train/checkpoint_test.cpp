/// Checkpoints: a run that was stopped goes on with the same bits, whenever and however it was
/// stopped.
#include "grapnel/train/checkpoint.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "grapnel/grapnel.h"
#include "grapnel/io/file.h"
#include "tests/io/temporary_folder.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

/// A small training run with everything that has state: weights, buffers, momenta, a schedule,
/// random numbers, a hook.
struct Run {
  nn::Sequential net{nn::Linear(6, 8), nn::BatchNorm1d(8), nn::Dropout(0.3), nn::Linear(8, 2)};
  optim::AdamW opt{net->parameters(), optim::AdamWOptions(0.05).amsgrad(true)};
  optim::CosineAnnealingLR schedule{opt, 50};
  optim::ReduceLROnPlateau plateau{opt, {.patience = 1000}};
  Tensor seen = zeros({1});
  int64_t step = 0;
  Checkpoint state;

  Run() {
    state.add("model", net)
        .add("optimizer", opt)
        .add("schedule", schedule)
        .add("plateau", plateau)
        .add("random", default_generator());
    state.add("seen", seen).add("step", step);
    net->parameters()[0].register_hook([this](const Tensor& g) { seen.add_(g.abs().sum()); });
  }
  void advance(int64_t to) {
    for (; step < to; ++step) {
      opt.zero_grad();
      const Tensor loss = net->forward(randn({5, 6})).square().mean();
      loss.backward();
      opt.step();
      schedule.step();
    }
  }
  /// All there is, as bytes.
  std::string bits() const {
    std::string out;
    const io::Archive all = state.archive();
    for (const auto& item : all.tensors())
      out += item.key() + std::string(static_cast<const char*>(item->contiguous().data_ptr()),
                                      static_cast<size_t>(item->nbytes()));
    for (const auto& [key, value] : all.values())
      if (const auto* s = std::get_if<Scalar>(&value))
        out += str(key, std::hexfloat, s->to_double());
    return out;
  }
};

}  // namespace

TEST_CASE("a run that is resumed has the bits of one that never stopped") {
  const TemporaryFolder folder;
  manual_seed(11);
  Run whole;
  whole.advance(10);
  whole.state.save(folder / "at10");
  whole.advance(25);

  manual_seed(999);
  Run resumed;
  CHECK_FALSE(resumed.state.resume(folder / "nothing here"));
  CHECK(resumed.state.resume(folder / "at10"));
  CHECK(resumed.step == 10);
  resumed.advance(25);
  CHECK(resumed.bits() == whole.bits());
}

TEST_CASE("a run that is killed at any moment goes on with the same bits") {
  const TemporaryFolder folder;
  const auto file = folder / "last.safetensors";
  constexpr int64_t last = 200;
  manual_seed(4);
  Run whole;
  whole.advance(last);

  // Each child resumes, steps and saves after every step until it is killed or done.
  const auto child = [&] {
    manual_seed(4);
    Run run;
    run.state.resume(file);
    while (run.step < last) {
      run.advance(run.step + 1);
      run.state.save(file);
    }
  };
  int kills = 0;
  int64_t at = 0;
  for (int round = 0; round < 500 && (kills < 50 || at < last); ++round) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      try {
        child();
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
    // Times that differ from round to round, so that all places are hit: training, writing,
    // renaming.
    if (kills < 50) {
      std::this_thread::sleep_for(std::chrono::microseconds(1500 + 137 * (round % 50)));
      kill(pid, SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status)) ++kills;
    else REQUIRE(WEXITSTATUS(status) == 0);
    if (std::filesystem::exists(file)) {
      const int64_t now =
          io::Archive::load(file).number("step.value").to_int();  // always a whole file
      CHECK(now >= at);
      at = now;
    }
    // Done before it was killed often enough: once more from the beginning.
    if (at == last && kills < 50) {
      std::filesystem::remove(file);
      at = 0;
    }
  }
  CHECK(kills >= 50);
  Run resumed;
  resumed.state.load(file);
  CHECK(resumed.step == last);
  CHECK(resumed.bits() == whole.bits());
}

TEST_CASE("a checkpoint that does not fit changes nothing and says why") {
  const TemporaryFolder folder;
  manual_seed(1);
  nn::Linear small(2, 2);
  Run run;
  run.advance(2);
  run.state.save(folder / "good");
  const std::string before = run.bits();

  int64_t step = 7;
  Checkpoint other;
  other.add("step", step).add("model", small);
  CHECK(error_text([&] { other.load(folder / "good"); })
            .find("the part 'model' does not fit; nothing was changed.\nload_state_dict: the "
                  "entries do not "
                  "fit") != std::string::npos);
  CHECK(step == 7);

  optim::SGD sgd(run.net->parameters(), optim::SGDOptions(0.1));
  Checkpoint wrong;
  wrong.add("model", run.net).add("optimizer", sgd);
  CHECK(error_text([&] { wrong.load(folder / "good"); })
            .ends_with("the checkpoint holds the state of grapnel::optim::AdamW, this optimiser is "
                       "grapnel::optim::SGD."));

  Checkpoint more;
  more.add("ema", small);
  CHECK(error_text([&] { more.load(folder / "good"); }).ends_with("good: holds no part 'ema'."));
  io::save_safetensors(folder / "foreign", small->state_dict());
  CHECK(error_text([&] {
          more.load(folder / "foreign");
        }).ends_with("holds no part 'ema'.\nIt was not written by a Checkpoint."));

  // Cut off anywhere, it is refused.
  const std::string bytes = io::read_text(folder / "good");
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    io::AtomicFile file(folder / "cut");
    file.write(bytes.substr(0, size));
    file.commit();
    CHECK_FALSE(error_text([&] { run.state.load(folder / "cut"); }).empty());
  }
  CHECK(run.bits() == before);
}

TEST_CASE("a checkpoint of a later version is refused by its number") {
  const TemporaryFolder folder;
  io::save_safetensors(folder / "later", io::NamedTensors(),
                       {{"grapnel", R"({"version": 9, "values": {}})"}});
  CHECK(
      error_text([&] { io::Archive::load(folder / "later"); })
          .ends_with(
              "later: is a checkpoint of version 9; this library reads version 1.\nUse the version "
              "of Grapnel that wrote it."));
  io::save_safetensors(folder / "damaged", io::NamedTensors(), {{"grapnel", "{\"version\""}});
  CHECK(error_text([&] {
          io::Archive::load(folder / "damaged");
        }).ends_with("the values beside the tensors are damaged."));
}

TEST_CASE("an archive whose values are made up is an error, however they are") {
  const TemporaryFolder folder;
  const std::string deep = R"({"version": 1, "values": {"a": )" + std::string(300'000, '[') +
                           std::string(300'000, ']') + "}}";
  for (const std::string& text :
       {deep, std::string(300'000, '{'), std::string("{}"), std::string("[]"), std::string("1e999"),
        std::string(R"({"version": "1", "values": {}})"), std::string(R"({"version": 1})"),
        std::string(R"({"version": 1, "values": []})"),
        std::string(R"({"version": 1, "values": {"a": null}})"),
        std::string(R"({"version": 1, "values": {"a": {"f64": 1}}})")}) {
    CAPTURE(text.substr(0, 60));
    io::save_safetensors(folder / "made", io::NamedTensors(), {{"grapnel", text}});
    const std::string error = error_text([&] { io::Archive::load(folder / "made"); });
    CHECK(error.find("made: ") != std::string::npos);
    if (text == deep) CHECK(error.find("nested deeper than 100 levels") != std::string::npos);
  }
}

TEST_CASE("an archive keeps every number exactly") {
  const TemporaryFolder folder;
  io::Archive out;
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> numbers = {0.1, -0.0, 1.0,         1e-320, 1.7976931348623157e308,
                                       inf, -inf, std::nan("")};
  for (size_t i = 0; i < numbers.size(); ++i) out.write(std::to_string(i), Scalar(numbers[i]));
  out.write("whole", Scalar(std::numeric_limits<int64_t>::min()));
  out.write("flag", Scalar(true));
  out.write("text", std::string("grüße \"\n\0", 11));
  out.save(folder / "file");
  const io::Archive in = io::Archive::load(folder / "file");
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Scalar back = in.number(std::to_string(i));
    CHECK(back.is_floating());
    const double value = back.to_double();
    if (std::isnan(numbers[i])) CHECK(std::isnan(value));
    else CHECK(std::memcmp(&value, &numbers[i], 8) == 0);
  }
  CHECK(in.number("whole").to_int() == std::numeric_limits<int64_t>::min());
  CHECK(in.number("flag").is_bool());
  CHECK(in.text("text") == out.text("text"));
}

TEST_CASE("a module and a tensor have files of their own, as in LibTorch") {
  const TemporaryFolder folder;
  nn::Linear a(3, 2), b(3, 2);
  grapnel::save(*a, folder / "linear");
  grapnel::load(*b, folder / "linear");
  CHECK(a->weight.equal(b->weight));
  Tensor t = arange(3), u;
  grapnel::save(t, folder / "tensor");
  grapnel::load(u, folder / "tensor");
  CHECK(u.equal(t));
}

TEST_CASE("metadata of each module is saved with it, and seen by its hooks when it is loaded") {
  const TemporaryFolder folder;
  nn::Sequential from{nn::Linear(3, 2)}, to{nn::Linear(3, 2)};
  from->children()[0]->register_state_dict_post_hook(
      [](nn::Module&, nn::StateDict&, const std::string&, nn::Metadata& facts) {
        facts["version"] = int64_t{2};
        facts["made.by"] = "a test";
        facts["exact"] = true;
        facts["scale"] = 0.1;
      });
  nn::Metadata root, leaf;
  to->register_load_state_dict_pre_hook(
      [&](nn::Module&, nn::LoadContext& load) { root = load.metadata; });
  to->children()[0]->register_load_state_dict_pre_hook(
      [&](nn::Module&, nn::LoadContext& load) { leaf = load.metadata; });
  grapnel::save(*from, folder / "net");
  grapnel::load(*to, folder / "net");
  CHECK(root.at("version").to<int64_t>() == 1);
  CHECK(leaf.size() == 4);
  CHECK(leaf.at("version").to<int64_t>() == 2);
  CHECK(leaf.at("made.by").to<std::string>() == "a test");
  CHECK(leaf.at("exact").to<bool>());
  CHECK(leaf.at("scale").to<double>() == 0.1);

  leaf.clear();
  Checkpoint saved, loaded;
  saved.add("model", *from).save(folder / "checkpoint");
  loaded.add("model", *to).load(folder / "checkpoint");
  CHECK(leaf.at("version").to<int64_t>() == 2);

  from->register_state_dict_post_hook(
      [](nn::Module&, nn::StateDict&, const std::string&, nn::Metadata& facts) {
        facts["mask"] = ones({2});
      });
  CHECK(error_text([&] { grapnel::save(*from, folder / "net"); }) ==
        "the metadata 'mask' of the module '' is a tensor of shape [2]; truth values, numbers and "
        "texts can be saved.");
}

TEST_CASE("a checkpoint knows tensors that are not there yet") {
  const TemporaryFolder folder;
  Tensor average = arange(3);
  Checkpoint begun;
  begun.add("ema", average).save(folder / "begun");
  Tensor none;
  Checkpoint fresh;
  fresh.add("ema", none).save(folder / "fresh");
  REQUIRE(fresh.resume(folder / "begun"));
  CHECK(none.equal(average));
  CHECK_FALSE(none.is_alias_of(average));
  REQUIRE(fresh.resume(folder / "fresh"));
  CHECK_FALSE(none.defined());

  // All or nothing for them, too.
  nn::Linear small(2, 2), large(3, 3);
  Checkpoint saved;
  saved.add("ema", average).add("model", small).save(folder / "small");
  Checkpoint wrong;
  wrong.add("ema", none).add("model", large);
  CHECK_FALSE(error_text([&] { wrong.load(folder / "small"); }).empty());
  CHECK_FALSE(none.defined());
}
