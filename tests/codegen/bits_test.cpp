/// Generated code and eager kernels give the same bits.
#include "grapnel/cpu/kernels/table.h"
#include "tests/codegen/jit_setup.h"

using namespace grapnel;
using namespace grapnel::codegen;

TEST_CASE(
    "every pointwise op has the same bits in generated code, in every type and on every "
    "instruction set") {
  const CleanJit clean;
  for_each_isa([] {
    for (int op = 0; op < op_count(); ++op) {
      for (Compute c : kComputes) {
        if (!op_exists(op, c)) continue;
        const BlockProgram p = single(op, c);
        CAPTURE(p.str());
        CHECK(agrees(p, 64 * 100 + 7, static_cast<uint64_t>(op)));
      }
    }
  });
}

TEST_CASE("conversions through every type have the same bits in generated code") {
  const CleanJit clean;
  for_each_isa([] {
    for (int via = 0; via < kDTypeCount; ++via) {
      BlockProgram p;
      for (Compute from : kComputes) {
        p.inputs.push_back(from);
        for (Compute to : kComputes)
          p.steps.push_back(
              convert_step(from, static_cast<DType>(via), to, static_cast<int32_t>(from)));
      }
      for (int32_t i = 0; i < 9; ++i) p.outputs.push_back(3 + i);
      CAPTURE(p.str());
      CHECK(agrees(p, 64 * 500, static_cast<uint64_t>(via)));
    }
  });
}

TEST_CASE("random programs have the same bits in generated code") {
  const CleanJit clean;
  for_each_isa([] {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      Random random(seed + 1000);
      const BlockProgram p = random_program(1 + static_cast<int>(seed), random);
      CAPTURE(seed);
      CAPTURE(p.str());
      CHECK(agrees(p, 64 * 5 + static_cast<int64_t>(seed), seed));
    }
  });
}

TEST_CASE("kernels and interpreter read narrow values as they are stored") {
  const CleanJit clean;
  for_each_isa([] {
    for (const DType type : {DType::Bool, DType::UInt8, DType::BFloat16}) {
      BlockProgram p;
      p.inputs = {Compute::F32, Compute::F32};
      p.stored = {DType::Float32, type};
      p.steps = {op_step(op_number("mul"), Compute::F32, {0, 1}),
                 convert_step(Compute::F32, DType::Float64, Compute::F64, 2)};
      p.outputs = {1, 2, 3};
      CAPTURE(p.str());
      CHECK(p.str().find("stored f32 ") != std::string::npos);
      for (const int64_t n : {1, 64, 1000, 5003}) {
        Arguments jit(p, n, 3), plain(p, n, 3);
        Random random(static_cast<uint64_t>(n));
        std::vector<uint16_t> narrow(static_cast<size_t>(n));
        auto* bytes = reinterpret_cast<uint8_t*>(narrow.data());
        for (int64_t i = 0; i < n; ++i) {
          if (type == DType::BFloat16)
            narrow[static_cast<size_t>(i)] = static_cast<uint16_t>(random());
          else bytes[i] = static_cast<uint8_t>(random() % (type == DType::Bool ? 2 : 256));
        }
        jit.in_pointers[1] = plain.in_pointers[1] = narrow.data();
        const auto kernel = kernel_for(p);
        REQUIRE(kernel->state() == Kernel::State::ready);
        kernel->run(jit.in_pointers.data(), jit.out_pointers.data(), nullptr, n);
        interpret(p, plain.in_pointers.data(), plain.out_pointers.data(), nullptr, n);
        for (size_t o = 0; o < 3; ++o) CHECK(first_difference(jit.out[o], plain.out[o], n) == -1);
        const auto load = kernels::table().load[static_cast<int>(type)][0];
        Block want(Compute::F32, n);
        load(narrow.data(), 1, want.data(), n);
        CHECK(first_difference(jit.out[0], want, n) == -1);
      }
    }
  });
}

TEST_CASE("kernels reduce in the lanes of the reduction tree") {
  const CleanJit clean;
  const int16_t count = 7;
  REQUIRE(reduction_name(count - 1) == "all");  // the last one
  // With many steps, lanes stay in memory.
  const auto check = [](Compute c, int16_t reduction, int steps) {
    BlockProgram p;
    p.inputs = {c, c};
    for (int k = 0; k < steps; ++k)
      p.steps.push_back(op_step(op_number("add"), c, {k == 0 ? 0 : k + 1, 1}));
    p.outputs = {steps + 1, steps + 1, 0};
    BlockProgram reducing = p;
    reducing.reductions = {reduction, reduction};
    CAPTURE(reducing.str());
    constexpr int64_t n = kLanes * 5;
    Arguments plain(p, n, 7), lanes(p, n, 7);
    interpret(p, plain.in_pointers.data(), plain.out_pointers.data(), nullptr, n);
    // The first values are combined with what is there: themselves, here.
    Block want[2] = {plain.out[1], plain.out[2]};
    const auto combine = kernels::table().reduce[reduction][static_cast<int>(c)].combine;
    const auto size = static_cast<int64_t>(element_size(dtype_of(c)));
    for (size_t o = 0; o < 2; ++o) {
      for (int64_t i = 0; i < n; i += kLanes)
        combine(want[o].data(), static_cast<char*>(plain.out[o + 1].data()) + i * size, kLanes);
      std::copy_n(static_cast<char*>(plain.out[o + 1].data()), kLanes * size,
                  static_cast<char*>(lanes.out_pointers[o + 1]));
    }
    const auto kernel = kernel_for(reducing);
    REQUIRE(kernel->state() == Kernel::State::ready);
    const Walk walks[] = {Walk::along, Walk::along};
    kernel->fn()(lanes.in_pointers.data(), walks, lanes.out_pointers.data(), nullptr, n);
    CHECK(first_difference(lanes.out[0], plain.out[0], n) == -1);
    CHECK(first_difference(lanes.out[1], want[0], kLanes) == -1);
    CHECK(first_difference(lanes.out[2], want[1], kLanes) == -1);
  };
  for_each_isa([&] {
    for (const Compute c : kComputes)
      for (int16_t reduction = 0; reduction < count; ++reduction)
        for (const int steps : {1, 20}) check(c, reduction, steps);
  });
}

TEST_CASE("generated code may write over its own inputs") {
  const CleanJit clean;
  BlockProgram p;
  p.inputs = {Compute::F32, Compute::F32};
  p.steps = {op_step(op_number("add"), Compute::F32, {0, 1}),
             op_step(op_number("mul"), Compute::F32, {2, 0}),
             op_step(op_number("sin"), Compute::F32, {3})};
  p.outputs = {2, 4, 0};
  const auto kernel = kernel_for(p);
  for (int64_t n : {1, 64, 1000}) {
    Arguments plain(p, n, 7), over(p, n, 7);
    interpret(p, plain.in_pointers.data(), plain.out_pointers.data(), nullptr, n);
    over.out_pointers[0] = over.in[1].data();
    over.out_pointers[1] = over.in[0].data();
    kernel->run(over.in_pointers.data(), over.out_pointers.data(), nullptr, n);
    CHECK(first_difference(over.in[1], plain.out[0], n) == -1);
    CHECK(first_difference(over.in[0], plain.out[1], n) == -1);
    CHECK(first_difference(over.out[2], plain.out[2], n) == -1);
  }
}
