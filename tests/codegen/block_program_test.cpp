#include "grapnel/codegen/block_program.h"

#include <doctest/doctest.h>

#include "grapnel/base/error.h"
#include "grapnel/cpu/kernels/table.h"
#include "tests/codegen/programs.h"

using namespace grapnel;
using namespace grapnel::codegen;

namespace {

/// The plainest interpreter: every register a block of its own.
void run_plainly(const BlockProgram& p, Arguments& a) {
  const kernels::KernelTable& table = kernels::table();
  std::vector<Block> registers = a.in;
  for (size_t i = 0; i < p.scalars.size(); ++i) {
    Block b(p.scalars[i], a.n);
    table.load[static_cast<int>(dtype_of(p.scalars[i]))][static_cast<int>(p.scalars[i])](
        &a.scalars.words[i], 0, b.data(), a.n);
    registers.push_back(b);
  }
  for (const Step& step : p.steps) {
    Block result(step.compute, a.n), narrow(step.compute, a.n);
    const void* operands[4] = {};
    for (int k = 0; k < step.arity; ++k)
      operands[k] = registers[static_cast<size_t>(step.operands[k])].data();
    if (step.kind == Step::Kind::op) {
      table.pointwise[step.op][static_cast<int>(step.compute)](operands, result.data(), a.n);
    } else {
      table.store[static_cast<int>(step.via)][static_cast<int>(step.from)](operands[0],
                                                                           narrow.data(), 1, a.n);
      table.load[static_cast<int>(step.via)][static_cast<int>(step.compute)](narrow.data(), 1,
                                                                             result.data(), a.n);
    }
    registers.push_back(result);
  }
  for (size_t o = 0; o < p.outputs.size(); ++o)
    std::memcpy(a.out_pointers[o], registers[static_cast<size_t>(p.outputs[o])].data(),
                static_cast<size_t>(a.n) * element_size(dtype_of(p.type_of(p.outputs[o]))));
}

}  // namespace

TEST_CASE("a program's text names ops and types and nothing that changes between builds") {
  BlockProgram p;
  p.inputs = {Compute::F32, Compute::F32};
  p.scalars = {Compute::F32};
  p.steps = {op_step(op_number("mul"), Compute::F32, {0, 2}),
             convert_step(Compute::F32, DType::BFloat16, Compute::F32, 3),
             op_step(op_number("add"), Compute::F32, {4, 1})};
  p.outputs = {5, 3};
  CHECK(p.str() ==
        "inputs f32 f32\n"
        "scalars f32\n"
        "%3 = mul.f32 %0 %2\n"
        "%4 = convert.f32.bf16.f32 %3\n"
        "%5 = add.f32 %4 %1\n"
        "outputs %5 %3\n");
  CHECK(p.type_of(0) == Compute::F32);
  verify(p);
  p.outputs = {6};
  CHECK_THROWS_AS(verify(p), InternalError);
}

TEST_CASE("interpreting in cache-sized pieces gives the bits of whole blocks, op by op") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const BlockProgram p = random_program(1 + static_cast<int>(seed), random);
    CAPTURE(p.str());
    verify(p);
    for (int64_t n : {1, 64, 1500}) {
      Arguments a(p, n, seed), b(p, n, seed);
      interpret(p, a.in_pointers.data(), a.out_pointers.data(), a.scalars.data(), n);
      run_plainly(p, b);
      for (size_t o = 0; o < p.outputs.size(); ++o)
        CHECK(first_difference(a.out[o], b.out[o], n) == -1);
    }
  }
}

TEST_CASE(
    "an output may be the very block of an input, also of one that is read later or is an output "
    "itself") {
  const int add = op_number("add"), mul = op_number("mul");
  BlockProgram p;
  p.inputs = {Compute::F64, Compute::F64};
  p.steps = {op_step(add, Compute::F64, {0, 1}), op_step(mul, Compute::F64, {2, 0}),
             op_step(add, Compute::F64, {3, 1})};
  p.outputs = {2, 4, 0, 1};
  for (int64_t n : {64, 1500}) {
    Arguments plain(p, n, 7), over(p, n, 7);
    run_plainly(p, plain);
    // The first two outputs lie over the inputs, crosswise.
    over.out_pointers[0] = over.in[1].data();
    over.out_pointers[1] = over.in[0].data();
    interpret(p, over.in_pointers.data(), over.out_pointers.data(), nullptr, n);
    CHECK(first_difference(over.in[1], plain.out[0], n) == -1);
    CHECK(first_difference(over.in[0], plain.out[1], n) == -1);
    CHECK(first_difference(over.out[2], plain.out[2], n) == -1);
    CHECK(first_difference(over.out[3], plain.out[3], n) == -1);
  }
}
