/// Which parameters a pass will reach: several forwards, results that nobody uses, leaves whose data
/// was replaced.
#include "weighted.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DistributedDataParallel;

TEST_CASE("several forwards lead to one backward, each with parameters of its own") {
  for (const bool search : {false, true})
    on_ranks(2, [&](ProcessGroup group) {
      DistributedDataParallel model(weighted({{1}, {1}, {1}, {1}}), group,
                                    {.find_unused_parameters = search});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        Tensor loss = zeros({});
        for (size_t used = 0; used < (search ? 3 : 4); ++used) {
          std::vector<Tensor> w(4);
          w[used] = filled(group.rank() + 10 * static_cast<int>(used));
          loss = loss + model(w);
        }
        loss.backward();
        for (size_t i = 0; i < 3; ++i)
          CHECK(grad_of(model, i) == doctest::Approx(0.5 + 10 * static_cast<double>(i)));
        CHECK(model.module().p[3].grad().defined() == !search);
      }
    });
}

TEST_CASE("a forward whose result is not used does not matter to the search for unused ones") {
  on_ranks(2, [&](ProcessGroup group) {
    DistributedDataParallel model(weighted({{1}, {1}}), group, {.find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      const Tensor loss = model(std::vector<Tensor>{filled(group.rank()), Tensor()});
      model(std::vector<Tensor>{Tensor(), filled(1)});  // looked at, and that is all
      loss.backward();
      CHECK(grad_of(model, 0) == doctest::Approx(0.5));
      CHECK(!model.module().p[1].grad().defined());
    }
  });
}

TEST_CASE("a leaf is found by the search, and a failure is heard of, whatever set_data has done") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(
        weighted({{1}, {1}, {1}}), group,
        {.find_unused_parameters = true, .reduced_precision = {{.parameters = kBFloat16}}});
    const auto run = [&] {
      model.zero_grad();
      model(std::vector<Tensor>{filled(group.rank(), {1}, kBFloat16), filled(1, {1}, kBFloat16),
                                Tensor()})
          .backward();
    };
    for (int step = 0; step < 2; ++step) run();
    CHECK(grad_of(model, 0) == doctest::Approx(0.5));
    CHECK(!model.module().p[2].grad().defined());
    model.module().p[0].register_hook([&](const Tensor&) {
      if (group.rank() == 1) throw std::logic_error("planned");
    });
    if (group.rank() == 1) CHECK_THROWS_AS(run(), std::logic_error);
    else CHECK_THROWS_AS(run(), dist::CommAborted);
  });
}
