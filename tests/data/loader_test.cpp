/// Datasets, samplers and the loader: every example once, in the same order whatever the number of
/// workers.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>

#include "grapnel/data/data_loader.h"
#include "grapnel/data/datasets.h"
#include "grapnel/grapnel.h"
#include "tests/io/temporary_folder.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

std::vector<int64_t> numbers(const Tensor& t) {
  const Tensor flat = t.to(kInt64).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}
data::DatasetPtr counting(int64_t n) {
  return std::make_shared<data::TensorDataset>(arange(n), 10 * arange(n));
}

std::vector<int64_t> seen(const data::DataLoader& loader, int64_t epoch, int64_t first = 0) {
  std::vector<int64_t> out;
  for (const data::Example& batch : loader.epoch(epoch, first)) {
    CHECK(batch.target.equal(10 * batch.data));
    for (const int64_t n : numbers(batch.data)) out.push_back(n);
  }
  return out;
}

struct Failing : data::Dataset {
  int64_t size() const override { return 20; }
  data::Example get(int64_t i, Generator&) const override {
    check(i != 13, "example 13 is damaged");
    return {full({1}, i)};
  }
};

}  // namespace

TEST_CASE("a loader gives every example once, in batches, with any number of workers") {
  for (const int64_t workers : {0, 1, 3}) {
    const data::DataLoader loader(counting(23), {.batch_size = 5, .workers = workers});
    CHECK(loader.size() == 5);
    std::vector<int64_t> sizes;
    for (const data::Example& batch : loader.epoch(0)) sizes.push_back(batch.data.size(0));
    CHECK(sizes == std::vector<int64_t>{5, 5, 5, 5, 3});
    std::vector<int64_t> all(23);
    std::iota(all.begin(), all.end(), 0);
    CHECK(seen(loader, 0) == all);
    CHECK(data::DataLoader(counting(23), {.batch_size = 5, .workers = workers, .drop_last = true})
              .size() == 4);
  }
}

TEST_CASE("shuffling differs from epoch to epoch and not from run to run or worker to worker") {
  const auto order = [](int64_t workers, int64_t epoch, uint64_t seed) {
    return seen(
        data::DataLoader(counting(40),
                         {.batch_size = 7, .shuffle = true, .workers = workers, .seed = seed}),
        epoch);
  };
  const auto first = order(0, 0, 1);
  CHECK(order(2, 0, 1) == first);
  CHECK(order(0, 1, 1) != first);
  CHECK(order(0, 0, 2) != first);
  auto sorted = first;
  std::ranges::sort(sorted);
  CHECK(sorted == seen(data::DataLoader(counting(40)), 0));
}

TEST_CASE("a resumed epoch goes on where it stopped") {
  const data::DataLoader loader(counting(40), {.batch_size = 4, .shuffle = true, .workers = 2});
  const auto whole = seen(loader, 3);
  CHECK(seen(loader, 3, 6) == std::vector<int64_t>(whole.begin() + 24, whole.end()));
  CHECK(loader.epoch(3, 6).size() == 4);
}

TEST_CASE("random changes to examples do not depend on the workers") {
  const auto noisy = data::map(counting(16), [](data::Example e, Generator& random) {
    e.data = e.data + rand({}, random);
    return e;
  });
  const auto all = [&](int64_t workers, int64_t epoch) {
    std::vector<Tensor> out;
    for (const data::Example& batch :
         data::DataLoader(noisy, {.batch_size = 4, .shuffle = true, .workers = workers})
             .epoch(epoch))
      out.push_back(batch.data);
    return cat(out);
  };
  CHECK(all(0, 0).equal(all(3, 0)));
  CHECK_FALSE(std::get<0>(all(0, 0).sort()).equal(std::get<0>(all(0, 1).sort())));
}

TEST_CASE(
    "an exception of the dataset arrives where its batch is due, and the loader can be left at any "
    "time") {
  for (const int64_t workers : {0, 2}) {
    const data::DataLoader loader(std::make_shared<Failing>(),
                                  {.batch_size = 5, .workers = workers});
    int64_t good = 0;
    CHECK(error_text([&] {
            for ([[maybe_unused]] const data::Example& batch : loader.epoch(0)) ++good;
          }) == "example 13 is damaged");
    CHECK(good == 2);
    for ([[maybe_unused]] const data::Example& batch : loader.epoch(1)) break;
  }
}

TEST_CASE("ranks share the examples evenly") {
  const auto random = std::make_shared<data::RandomSampler>(10, 5);
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto part = data::DistributedSampler(random, rank, 4).order(2);
    CHECK(part.size() == 3);
    all.insert(all.end(), part.begin(), part.end());
    CHECK(data::DistributedSampler(random, rank, 4, true).order(2).size() == 2);
  }
  std::ranges::sort(all);
  CHECK(std::vector<int64_t>(all.begin(), std::unique(all.begin(), all.end())).size() == 10);
  CHECK(error_text([&] { data::DistributedSampler(random, 4, 4); }) ==
        "DistributedSampler: rank must be in [0, world), got rank 4 of 4.");
}

TEST_CASE("weights decide how often an example is drawn") {
  const auto order = data::WeightedRandomSampler({1, 0, 3}, 4000).order(0);
  CHECK(std::ranges::count(order, 1) == 0);
  CHECK(std::ranges::count(order, 2) > 2800);
  CHECK(std::ranges::count(order, 2) < 3200);
}

TEST_CASE(
    "Fashion-MNIST is read where it is installed, and otherwise the message says how to get it") {
  CHECK(error_text([] { data::FashionMNIST("no/such/folder"); })
            .starts_with("no/such/folder: there is no such folder, so Fashion-MNIST cannot be "
                         "read.\nOn Debian"));
  if (!std::filesystem::is_directory(data::FashionMNIST::default_root())) return;
  const auto test = std::make_shared<data::FashionMNIST>(data::FashionMNIST::default_root(),
                                                         data::FashionMNIST::Mode::test);
  CHECK(test->size() == 10000);
  Generator g;
  const data::Example one = test->get(7, g);
  CHECK(one.data.shape() == Shape{1, 28, 28});
  const data::DataLoader loader(test, {.batch_size = 100, .workers = 2});
  for (const data::Example& batch : loader.epoch(0)) {
    CHECK(batch.data.shape() == Shape{100, 1, 28, 28});
    CHECK(batch.data[7].equal(one.data));
    CHECK(batch.data.max().item<double>() <= 1);
    break;
  }
}

TEST_CASE("a text becomes windows of tokens, each with the text one character later as target") {
  const auto text = data::TextCorpus::from_text("héllo world", {.block = 4, .stride = 3});
  CHECK(text.vocab_size() == 8);
  CHECK(text.size() == 3);
  Generator g;
  const data::Example e = text.get(1, g);
  CHECK(text.decode(numbers(e.data)) == "lo w");
  CHECK(text.decode(numbers(e.target)) == "o wo");
  CHECK(text.decode(text.encode("wéll")) == "wéll");
  CHECK(error_text([&] { text.encode("x"); }) ==
        "TextCorpus: the character 'x' is not in the text it was made from.");
  CHECK(error_text([] {
          data::TextCorpus::from_text("abc", {.block = 3});
        }).starts_with("TextCorpus: the text has 3 characters"));

  const TemporaryFolder folder;
  std::ofstream(folder / "b.txt") << "second";
  std::ofstream(folder / "a.txt") << "first ";
  const data::TextCorpus files(folder.path(), {.block = 2});
  CHECK(files.decode(numbers(files.tokens())) == "first second");
}

TEST_CASE("a batch larger than the dataset holds all of it, however large") {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const int64_t workers : {int64_t{0}, int64_t{2}, huge}) {
    const data::DataLoader loader(
        counting(10), {.batch_size = huge, .workers = workers, .prefetch = workers});
    CHECK(loader.size() == 1);
    CHECK(seen(loader, 0).size() == 10);
  }
  CHECK(data::DataLoader(counting(10), {.batch_size = huge, .drop_last = true}).size() == 0);
}
