// grapnel._core._data: datasets of the C++ library. Batches are made without the interpreter's lock,
// so that threads make several at a time.
#include "grapnel/data/datasets.h"
#include "grapnel/data/sampler.h"
#include "python/src/bind.h"

namespace grapnel::python {

namespace {

struct PyDataset {
  std::shared_ptr<data::Dataset> dataset;
  std::shared_ptr<data::TextCorpus> text = nullptr;  ///< the same, if it is one
};

nb::object batch(const PyDataset& d, const Ints& indices, uint64_t seed) {
  data::Example out;
  const std::vector<int64_t> list = IntArrayRef(indices).vec();
  {
    const WithoutInterpreter others_run;
    std::vector<Generator> randoms;
    for (const int64_t i : list)
      randoms.push_back(Generator(data::mix_seed(seed, static_cast<uint64_t>(i))));
    out = d.dataset->get_batch(list, randoms);
  }
  return out.target.defined() ? nb::make_tuple(result(out.data), result(out.target))
                              : nb::make_tuple(result(out.data));
}

}  // namespace

void bind_data(nb::module_& m) {
  nb::module_ data = m.def_submodule("_data");
  nb::class_<PyDataset>(data, "_Dataset")
      .def("size", [](const PyDataset& d) { return d.dataset->size(); })
      .def("batch", batch)
      .def("vocab_size", [](const PyDataset& d) { return d.text->vocab_size(); })
      .def("encode",
           [](const PyDataset& d, const std::string& text) {
             nb::list out;
             for (const int64_t token : d.text->encode(text)) out.append(token);
             return out;
           })
      .def("decode",
           [](const PyDataset& d, const Ints& tokens) { return d.text->decode(IntArrayRef(tokens).vec()); });
  data.def(
      "fashion_mnist",
      [](const std::optional<std::string>& root, bool train) {
        using data::FashionMNIST;
        const WithoutInterpreter others_run;
        return PyDataset{std::make_shared<FashionMNIST>(
            root ? std::filesystem::path(*root) : FashionMNIST::default_root(),
            train ? FashionMNIST::Mode::train : FashionMNIST::Mode::test)};
      },
      "root"_a.none(), "train"_a);
  data.def("text_corpus", [](const std::string& path, int64_t block, int64_t stride) {
    const WithoutInterpreter others_run;
    const auto text =
        std::make_shared<data::TextCorpus>(path, data::TextCorpus::Options{block, stride});
    return PyDataset{text, text};
  });
}

}  // namespace grapnel::python
