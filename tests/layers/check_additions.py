#!/usr/bin/env python3
"""What adding a thing costs: few files by hand, and few sources that are built again.

One of each kind is added to a copy of the tree. The compiler reads what was written, so that nothing is missing; the sources that
would be built again are those that include a changed file, however indirectly. Documents and tests are not counted.
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*"(grapnel/[^"]+)"', re.M)
END = "}  // namespace grapnel"

POINTWISE = """/// x * x * x
struct Cube : Pointwise<1> {
  static constexpr std::string_view name = "cube";
  template <class S>
  static S scalar(S x) {
    return x * x * x;
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g) { return {g * s.input(0) * s.input(0) * 3.0}; }
  static Samples samples() { return sample_values({-1.5, 0.0, 2.0}); }
};
"""
REDUCTION = """/// The largest value, and 0 where none is above it.
struct Summit : Reduction {
  static constexpr std::string_view name = "summit";
  template <class S>
  static S identity() {
    return S(0.0);
  }
  template <class S>
  static S combine(S a, S b) {
    return select(a > b, a, b);
  }
  static Samples samples() { return sample_reductions(); }
};
"""
KERNEL = """/// The elements of a line, counted from its end.
struct Backwards : Call<1> {
  static constexpr std::string_view name = "backwards";
  using Attrs = CumsumAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out) { out.push_back({in[0]->shape(), in[0]->dtype()}); }
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples() { return {sample({sample_tensor({3, 4})}, Attrs{0, true})}; }
};
"""
KERNEL_RUN = """template <>
void run<Backwards>(Inputs in, const Backwards::Attrs&, std::span<Tensor> out) {
  cpu::copy(out[0], *in[0]);
}
"""
MODULE_HEADER = """/// Tally: adds a learned number.
#pragma once

#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

class TallyImpl : public Cloneable<TallyImpl> {
 public:
  TallyImpl() { TallyImpl::reset(); }
  void reset() override;
  Tensor forward(const Tensor& x);
  Tensor bias;
};
GRAPNEL_MODULE(Tally);

}  // namespace grapnel::nn
"""
MODULE_SOURCE = """#include "grapnel/nn/tally.h"

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::nn {

void TallyImpl::reset() { bias = register_parameter("bias", zeros({})); }
Tensor TallyImpl::forward(const Tensor& x) { return x + bias; }

}  // namespace grapnel::nn
"""
HOOK = """/// Sends nothing, and forgets what was there.
struct Forget : StatelessHook<Forget> {
  static constexpr std::string_view name = "forget";
  static Future<Tensor> run(GradBucket& bucket, const ProcessGroup& group);
};
inline constexpr Forget forget;

"""
HOOK_RUN = """Future<Tensor> Forget::run(GradBucket& bucket, const ProcessGroup&) {
  return Future<Tensor>(bucket.buffer().zero_());
}

"""


def lion(text):
    """An optimiser by another name."""
    return text.replace("Lion", "Puma").replace("lion.h", "puma.h")


def read(name):
    return (ROOT / "grapnel" / name).read_text()


# Kind -> the most files, and the edits: (file, text that stands there, text to put before it), or (new file, None, its text).
LIST, UNARY = "#define GRAPNEL_FUNCTIONS(X) ", "#define GRAPNEL_UNARY_FUNCTIONS(X) \\\n"
ADDITIONS = {
    "a pointwise op": (2, [
        ("ops/defs/activation.h", END, POINTWISE), ("functions/one_call.h", UNARY, (UNARY, "  X(cube, Cube) \\\n"))]),
    "a reduction": (3, [
        ("ops/defs/reduction.h", "/// Their place", REDUCTION), ("ops/defs/reduction.h", "Amax, Amin", "Summit, "),
        ("functions/one_call.h", LIST, (LIST, "X(summit, Summit, (const Tensor& x, bool keepdim), ({.dims = {0}, .keepdim = keepdim}, x)) "))]),
    "an op with a kernel of its own": (3, [
        ("ops/defs/sort.h", "using SortOps", KERNEL), ("ops/defs/sort.h", "Sort, Topk", "Backwards, "),
        ("cpu/sort.cpp", "}  // namespace grapnel::cpu", KERNEL_RUN),
        ("functions/one_call.h", LIST, (LIST, "X(backwards, Backwards, (const Tensor& x, int64_t dim), ({.dim = dim}, x)) "))]),
    "a module with state": (3, [
        ("nn/tally.h", None, MODULE_HEADER), ("nn/tally.cpp", None, MODULE_SOURCE),
        ("nn/nn.h", '#include "grapnel/nn/transformer.h"', '#include "grapnel/nn/tally.h"\n')]),
    "an optimiser": (3, [
        ("optim/puma.h", None, lion(read("optim/lion.h"))), ("optim/puma.cpp", None, lion(read("optim/lion.cpp"))),
        ("optim/optim.h", '#include "grapnel/optim/rmsprop.h"', '#include "grapnel/optim/puma.h"\n')]),
    "a comm hook with a name": (3, [
        ("dist/hooks.h", "inline constexpr AllReduce", HOOK), ("dist/hooks.cpp", "template <DType dtype>\nFuture", HOOK_RUN),
        ("dist/hooks.cpp", "quantize_per_channel, noop)", "forget, ")]),
}
# What the compiler reads besides the changed sources: tables over all ops, and the umbrella.
TABLES = ["ops/list.cpp", "functions/one_call.cpp", "codegen/op_names.cpp", "cpu/kernels/table_isa.cpp"]


def apply(folder, edits):
    """The files that were changed or made."""
    for name, mark, text in edits:
        path = folder / "grapnel" / name
        if mark is None:
            path.write_text(text)
            continue
        old = path.read_text()
        if mark not in old:
            sys.exit(f"{name}: '{mark}' is not in it any more; say here where such a thing is added now.")
        before, after = old.rsplit(mark, 1) if mark == END else old.split(mark, 1)
        path.write_text(before + (text[0] + text[1] if isinstance(text, tuple) else text + mark) + after)
    return {name for name, _, _ in edits}


def rebuilt(changed):
    """How many sources include something that was changed, and how many there are. Kernels are built once for each instruction set."""
    texts = {str(p.relative_to(ROOT)): p.read_text() for p in (ROOT / "grapnel").rglob("*") if p.suffix in {".h", ".cpp", ".inc"}}
    users = {}
    for name, text in texts.items():
        for included in INCLUDE.findall(text):
            users.setdefault(included, set()).add(name)
    reached, todo = set(), [f"grapnel/{name}" for name in changed]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += users.get(name, ())
    count = lambda names: sum(3 if n.endswith("_isa.cpp") else 1 for n in names if n.endswith(".cpp") and n in texts)
    return count(reached), count(texts)


def main():
    cache = pathlib.Path(sys.argv[1], "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.M)[1]
    failed, changed = [], set()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(ROOT / "grapnel", folder / "grapnel")
        for kind, (most, edits) in ADDITIONS.items():
            files = apply(folder, edits)
            changed |= files
            again, all_sources = rebuilt(files)
            print(f"{kind}: {len(files)} files, {again} of {all_sources} sources are built again")
            if len(files) > most or 3 * again > all_sources:
                failed.append(f"{kind} costs more than {most} files or a third of the sources.")
        (folder / "all.cpp").write_text('#include "grapnel/grapnel.h"\nstatic_assert(sizeof(grapnel::cube(grapnel::Tensor())));\n')
        sources = sorted({f"grapnel/{f}" for f in [*changed, *TABLES] if f.endswith(".cpp")}) + ["all.cpp"]

        def check(source):
            flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I.", "-DGRAPNEL_ISA=grapnel::IsaBaseline"]
            return subprocess.run([compiler, *flags, source], cwd=folder, text=True, capture_output=True, check=False)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for source, done in zip(sources, pool.map(check, sources)):
                if done.returncode:
                    failed.append(f"{source} does not compile with the additions:\n{done.stderr[:2000]}")
    print("\n".join(failed))
    print(f"{len(ADDITIONS) + len(sources) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
