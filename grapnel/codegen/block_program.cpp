#include "grapnel/codegen/block_program.h"

#include "grapnel/base/error.h"
#include "grapnel/codegen/op_names.h"

namespace grapnel::codegen {
namespace {

std::string_view name_of(Compute c) { return name(dtype_of(c)); }

void append_types(std::string& text, std::string_view label, const std::vector<Compute>& types) {
  text += label;
  for (Compute c : types) (text += ' ') += name_of(c);
  text += '\n';
}

}  // namespace

Compute BlockProgram::type_of(int32_t reg) const {
  const size_t r = static_cast<size_t>(reg);
  if (r < inputs.size()) return inputs[r];
  if (r < inputs.size() + scalars.size()) return scalars[r - inputs.size()];
  return steps[r - inputs.size() - scalars.size()].compute;
}

std::string BlockProgram::str() const {
  std::string text;
  append_types(text, "inputs", inputs);
  if (!stored.empty()) {
    text += "stored";
    for (const DType type : stored) (text += ' ') += name(type);
    text += '\n';
  }
  append_types(text, "scalars", scalars);
  size_t reg = inputs.size() + scalars.size();
  for (const Step& step : steps) {
    ((text += '%') += std::to_string(reg++)) += " = ";
    if (step.kind == Step::Kind::op) {
      ((text += op_name(step.op)) += '.') += name_of(step.compute);
    } else {
      ((((((text += "convert.") += name_of(step.from)) += '.') += name(step.via)) += '.') +=
       name_of(step.compute));
    }
    for (int i = 0; i < step.arity; ++i) (text += " %") += std::to_string(step.operands[i]);
    text += '\n';
  }
  text += streams ? "streams" : "outputs";
  for (size_t i = 0; i < outputs.size(); ++i) {
    (text += " %") += std::to_string(outputs[i]);
    if (const size_t plain = outputs.size() - reductions.size(); i >= plain)
      (text += '.') += reduction_name(reductions[i - plain]);
  }
  text += '\n';
  return text;
}

void verify(const BlockProgram& program) {
  const auto& [inputs, scalars, steps, outputs, streams, reductions, stored] = program;
  const auto first = static_cast<int32_t>(inputs.size() + scalars.size());
  auto defined_before = [&program](int32_t reg, int32_t end) {
    GRAPNEL_ASSERT(reg >= 0 && reg < end, "register %", reg, " is read before it is written, in:\n",
                   program.str());
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    const BlockProgram::Step& step = steps[i];
    const bool is_op = step.kind == BlockProgram::Step::Kind::op;
    GRAPNEL_ASSERT(!is_op || (step.op >= 0 && step.op < op_count()),
                   "there is no pointwise op number ", step.op);
    GRAPNEL_ASSERT(step.arity == (is_op ? op_arity(step.op) : 1), "step ", i, " has ", step.arity,
                   " operands, in:\n", program.str());
    GRAPNEL_ASSERT(!is_op || op_exists(step.op, step.compute), op_name(step.op),
                   " does not exist for ", name_of(step.compute));
    for (int k = 0; k < step.arity; ++k) {
      defined_before(step.operands[k], first + static_cast<int32_t>(i));
      const Compute wanted = is_op ? step.compute : step.from;
      GRAPNEL_ASSERT(program.type_of(step.operands[k]) == wanted, "operand ", k, " of step ", i,
                     " is not ", name_of(wanted), ", in:\n", program.str());
    }
  }
  for (int32_t out : outputs) defined_before(out, first + static_cast<int32_t>(steps.size()));
  GRAPNEL_ASSERT(stored.empty() || stored.size() == inputs.size(), stored.size(),
                 " stored types for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i)
    GRAPNEL_ASSERT(reads_directly(program.stored_as(i), inputs[i]), "input ", i, " is stored as ",
                   name(program.stored_as(i)), ", in:\n", program.str());
  GRAPNEL_ASSERT(reductions.size() <= outputs.size() && (reductions.empty() || !streams),
                 "reduced outputs are outputs, and stay in the caches, in:\n", program.str());
}

}  // namespace grapnel::codegen
