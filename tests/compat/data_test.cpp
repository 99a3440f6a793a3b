// torch::data: datasets, transforms, samplers and loaders.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "grapnel/compat/torch.h"

namespace {

using torch::data::Example;
namespace datasets = torch::data::datasets;
namespace transforms = torch::data::transforms;
namespace samplers = torch::data::samplers;

/// x and x^2 for the numbers below `count`.
struct Squares : datasets::Dataset<Squares> {
  explicit Squares(size_t n) : count(n) {}
  Example<> get(size_t index) override {
    if (index == broken) throw std::runtime_error("example 13 is broken");
    auto x = torch::full({1}, static_cast<double>(index));
    return {x, x * x};
  }
  torch::optional<size_t> size() const override { return count; }
  size_t count, broken = 1000000;
};

/// Batches of numbers, until there are no more.
struct Countdown : datasets::StatefulDataset<Countdown, std::vector<int>> {
  torch::optional<std::vector<int>> get_batch(size_t size) override {
    if (left == 0) return torch::nullopt;
    std::vector<int> out;
    for (; size > 0 && left > 0; --size) out.push_back(left--);
    return out;
  }
  void reset() override { left = 5; }
  void save(torch::serialize::OutputArchive& archive) const override {
    archive.write("left", torch::tensor(left));
  }
  void load(torch::serialize::InputArchive& archive) override {
    torch::Tensor t;
    archive.read("left", t);
    left = t.item<int>();
  }
  torch::optional<size_t> size() const override { return 5; }
  int left = 0;
};

void write_idx(const std::filesystem::path& path, const std::vector<uint8_t>& header,
               const std::vector<uint8_t>& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), static_cast<long>(header.size()));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
}

template <class Loader>
std::vector<double> first_column(Loader& loader) {
  std::vector<double> out;
  for (auto& batch : loader)
    for (int64_t i = 0; i < batch.data.size(0); ++i)
      out.push_back(batch.data[i].template item<double>());
  return out;
}

}  // namespace

TEST_CASE("a loader gives stacked batches in the order of its sampler") {
  auto dataset = Squares(10).map(transforms::Stack<>());
  auto loader = torch::data::make_data_loader<samplers::SequentialSampler>(std::move(dataset), 4);
  std::vector<int64_t> sizes;
  for (auto& batch : *loader) {
    sizes.push_back(batch.data.size(0));
    CHECK(batch.target.equal(batch.data * batch.data));
    CHECK(batch.data.dim() == 2);
  }
  CHECK(sizes == std::vector<int64_t>{4, 4, 2});
  CHECK(first_column(*loader) == std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});

  auto whole = torch::data::make_data_loader<samplers::SequentialSampler>(
      Squares(10).map(transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(4).drop_last(true));
  CHECK(first_column(*whole).size() == 8);
}

TEST_CASE("the default sampler gives all examples in another order every epoch") {
  torch::manual_seed(1);
  auto loader = torch::data::make_data_loader(Squares(50).map(transforms::Stack<>()), 8);
  auto first = first_column(*loader), second = first_column(*loader);
  CHECK(first != second);
  CHECK(std::set<double>(first.begin(), first.end()).size() == 50);
  CHECK(std::set<double>(second.begin(), second.end()).size() == 50);
}

TEST_CASE("workers give the same batches in the same order") {
  for (size_t workers : {1, 3}) {
    auto loader = torch::data::make_data_loader<samplers::SequentialSampler>(
        Squares(100).map(transforms::Stack<>()),
        torch::data::DataLoaderOptions().batch_size(7).workers(workers).max_jobs(5));
    for (int epoch = 0; epoch < 2; ++epoch) {
      auto column = first_column(*loader);
      REQUIRE(column.size() == 100);
      for (size_t i = 0; i < 100; ++i) CHECK(column[i] == static_cast<double>(i));
    }
  }
}

TEST_CASE("an exception of a dataset is thrown where its batch is due") {
  Squares squares(40);
  squares.broken = 13;
  for (size_t workers : {0, 2}) {
    auto loader = torch::data::make_data_loader<samplers::SequentialSampler>(
        squares, torch::data::DataLoaderOptions().batch_size(5).workers(workers));
    size_t seen = 0;
    std::string message;
    try {
      for (auto& batch : *loader) seen += batch.size();
    } catch (const std::exception& e) {
      message = e.what();
    }
    CHECK(seen == 10);
    CHECK(message.find("example 13 is broken") != std::string::npos);
  }
}

TEST_CASE("transforms change examples, data, or whole batches") {
  auto twice = Squares(4)
                   .map(transforms::Lambda<Example<>>(
                       [](Example<> e) { return Example<>{e.data + 1, e.target}; }))
                   .map(transforms::TensorLambda<>([](torch::Tensor t) { return t * 2; }))
                   .map(transforms::Stack<>());
  const std::vector<size_t> wanted{3, 0};
  auto batch = twice.get_batch(wanted);
  CHECK(batch.data.equal(torch::tensor({{8.0}, {2.0}}, torch::kFloat32)));
  CHECK(batch.target.equal(torch::tensor({{9.0}, {0.0}}, torch::kFloat32)));

  auto sums = Squares(4).map(
      transforms::BatchLambda<std::vector<Example<>>, double>([](std::vector<Example<>> examples) {
        double sum = 0;
        for (auto& e : examples) sum += e.target.item<double>();
        return sum;
      }));
  CHECK(sums.get_batch(wanted) == 9);

  transforms::Normalize<> normalize({1.0, 2.0}, {2.0, 4.0});
  auto image = normalize(torch::ones({2, 1, 1}) * 3);
  CHECK(image.flatten().equal(torch::tensor({1.0, 0.25})));
  CHECK(transforms::Normalize<>(0.5, 0.5)(torch::ones({1, 2, 2})).sum().item<float>() == 4);
}

TEST_CASE("a dataset may be rows of a tensor, shared, or know itself what comes next") {
  auto rows = datasets::TensorDataset(torch::arange(6, torch::kFloat32).view({3, 2}))
                  .map(transforms::Stack<torch::data::TensorExample>());
  auto loader = torch::data::make_data_loader<samplers::SequentialSampler>(std::move(rows), 2);
  std::vector<int64_t> sizes;
  for (auto& batch : *loader) sizes.push_back(batch.data.size(0));
  CHECK(sizes == std::vector<int64_t>{2, 1});

  auto shared = datasets::make_shared_dataset<Squares>(6);
  shared->count = 4;
  auto few = torch::data::make_data_loader(shared.map(transforms::Stack<>()), 3);
  CHECK(first_column(*few).size() == 4);

  auto stateful = torch::data::make_data_loader(Countdown(), 2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int> all;
    for (auto& batch : *stateful) all.insert(all.end(), batch.begin(), batch.end());
    CHECK(all == std::vector<int>{5, 4, 3, 2, 1});
  }
}

TEST_CASE("processes share an epoch among them") {
  std::multiset<size_t> all;
  for (size_t rank : {0, 1, 2}) {
    samplers::DistributedRandomSampler sampler(10, 3, rank);
    size_t count = 0;
    while (auto batch = sampler.next(3)) {
      count += batch->size();
      all.insert(batch->begin(), batch->end());
    }
    CHECK(count == 4);
  }
  CHECK(std::set<size_t>(all.begin(), all.end()).size() == 10);
  samplers::DistributedSequentialSampler second(10, 2, 1);
  CHECK(second.next(2).value() == std::vector<size_t>{5, 6});
}

TEST_CASE("a sampler goes on where another one was") {
  torch::manual_seed(3);
  samplers::RandomSampler sampler(20), other(20);
  sampler.next(7);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  other.load(in);
  CHECK(other.index() == 7);
  CHECK(other.next(13).value() == sampler.next(13).value());
  CHECK_FALSE(other.next(1).has_value());
}

TEST_CASE("MNIST is read from the files as they are published") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("grapnel-mnist-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::vector<uint8_t> pixels(3 * 28 * 28, 0);
  pixels[0] = 255;
  write_idx(folder / "t10k-images-idx3-ubyte", {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 28, 0, 0, 0, 28},
            pixels);
  write_idx(folder / "t10k-labels-idx1-ubyte", {0, 0, 8, 1, 0, 0, 0, 3}, {7, 2, 1});
  datasets::MNIST mnist(folder.string(), datasets::MNIST::Mode::kTest);
  CHECK(mnist.size().value() == 3);
  CHECK_FALSE(mnist.is_train());
  auto example = mnist.get(0);
  CHECK(example.data.sizes() == torch::IntArrayRef({1, 28, 28}));
  CHECK(example.data.max().item<float>() == 1);
  CHECK(mnist.targets().equal(torch::tensor({7, 2, 1})));
  CHECK_THROWS_AS(datasets::MNIST(folder.string()), std::exception);
  std::filesystem::remove_all(folder);
}
