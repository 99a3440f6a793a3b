/// The families of definitions, and how a definition becomes an Op.
///
/// Derive a struct from Pointwise<N>, Reduction, View or Call, give it what its family asks for,
/// add it to AllOps in list.h. The compiler names what is missing. `samples` feeds the op sweep: an
/// op without samples does not compile.
#pragma once

#include <array>
#include <concepts>
#include <memory>
#include <tuple>

#include "grapnel/math/scalar.h"
#include "grapnel/ops/op.h"

namespace grapnel {

/// For ops without attributes.
struct NoAttrs {
  static void visit(auto&, auto&&) {}
};

/// N inputs broadcast against each other; `scalar(S...)` is the meaning. `check_types(inputs)`, if
/// there is one, refuses types that a kernel could compute but that have no meaning there;
/// `refused` says which values of integers are.
template <int N>
struct Pointwise {
  static constexpr Family family = Family::pointwise;
  static constexpr int arity = N;
  static constexpr TypeRule type_rule = TypeRule::promote;
  using Attrs = NoAttrs;
};

/// Attributes every reduction has: which dimensions go, and whether they stay as size 1.
struct ReduceAttrs {
  Shape dims;  ///< sorted, distinct
  bool keepdim = false;
  static void visit(auto& self, auto&& v) {
    v("dims", self.dims);
    v("keepdim", self.keepdim);
  }
};

/// One input; `identity<S>()` and `combine(S, S)` are the meaning, `finish(S, S count)` an optional
/// last step. Note [Reduction tree] in cpu/kernels/reduce_kernel.h says in which order values are
/// combined.
struct Reduction {
  static constexpr Family family = Family::reduction;
  static constexpr int arity = 1;
  static constexpr TypeRule type_rule = TypeRule::promote;
  using Attrs = ReduceAttrs;
};

/// Moves no data. The definition has `geometry(input, attrs) -> Geometry`, or `views(input, attrs)`
/// for several outputs.
struct View {
  static constexpr Family family = Family::view;
  static constexpr int arity = 1;
  static constexpr TypeRule type_rule = TypeRule::promote;
  using Attrs = NoAttrs;
};

/// Anything else: `infer(inputs, attrs, specs)`. How it is computed stands with the device: for the
/// CPU in cpu/run.h. `lower(inputs, attrs)`, if it can, states it in other ops.
template <int N>
struct Call {
  static constexpr Family family = Family::call;
  static constexpr int arity = N;
  static constexpr TypeRule type_rule = TypeRule::promote;
  using Attrs = NoAttrs;
};

/// Where a view lies in its storage.
struct Geometry {
  Shape sizes, strides;
  int64_t offset = 0;
};

// --- what the families bring ---

void infer_pointwise(const Op& op, Inputs inputs, Specs& out);
/// The type that a pointwise op converts its inputs to before computing.
DType pointwise_input_type(const Op& op, Inputs inputs);
/// For those who ask once per call.
namespace pointwise {

/// result_type, with a short way for tensors of one type beside numbers, which yield to floating
/// types.
inline DType common_type(Inputs inputs) {
  const TensorImpl& first = inputs[0]->impl();
  if (first.wrapped_number) return result_type(inputs);
  for (const Tensor* t : inputs.subspan(1)) {
    const TensorImpl& other = t->impl();
    if (other.wrapped_number ? !is_floating(first.dtype) : other.dtype != first.dtype)
      return result_type(inputs);
  }
  return first.dtype;
}

inline DType input_type(const Op& op, Inputs inputs) {
  const DType common =
      op.type_rule == TypeRule::fill
          ? inputs[0]->dtype()
          : common_type(op.type_rule == TypeRule::select ? inputs.subspan(1) : inputs);
  return op.type_rule == TypeRule::floating && !is_floating(common) ? get_default_dtype() : common;
}

}  // namespace pointwise
void infer_reduction(const Op& op, Inputs inputs, const ReduceAttrs& attrs, Specs& out);
/// A tensor over the storage of `base`.
Tensor make_alias(const Tensor& base, const Geometry& geometry);

template <class D>
concept HasGrad = requires { &D::grad; };
template <class D>
concept HasLower = requires { &D::lower; };
template <class D>
concept HasProduct = requires { &D::product; };
template <class D>
concept HasScalar = D::family == Family::pointwise;
template <class D>
concept HasCombine = D::family == Family::reduction;
template <class D>
concept Definition = requires {
  { std::string_view(D::name) };
  { D::samples() } -> std::convertible_to<Samples>;
  typename D::Attrs;
  requires std::is_trivially_copyable_v<typename D::Attrs>;
};

template <class... D>
struct OpList {
  static constexpr int size = sizeof...(D);
};
template <class D, class List>
struct IndexIn;
template <class D, class... L>
struct IndexIn<D, OpList<L...>> {
  static constexpr int value = [] {
    int i = 0, found = -1;
    ((std::is_same_v<D, L> ? (found = i, ++i) : ++i), ...);
    return found;
  }();
};

/// Defined in op_table.h. A static member, because g++ 12 never emits a variable template that was
/// declared extern first.
template <class D>
struct OpOf {
  static const Op value;
};
/// The run-time face of a definition.
template <class D>
inline constexpr const Op& op_of = OpOf<D>::value;

namespace define {

template <class D>
const typename D::Attrs& attrs_of(const void* attrs) {
  return *static_cast<const typename D::Attrs*>(attrs);
}

template <class D>
void infer(Inputs inputs, const void* attrs, Specs& out) {
  if constexpr (D::family == Family::pointwise) {
    if constexpr (requires { D::check_types(inputs); }) D::check_types(inputs);
    infer_pointwise(op_of<D>, inputs, out);
  } else if constexpr (D::family == Family::reduction) {
    infer_reduction(op_of<D>, inputs, attrs_of<D>(attrs), out);
  } else if constexpr (requires { &D::geometry; }) {
    out.push_back({D::geometry(*inputs[0], attrs_of<D>(attrs)).sizes, inputs[0]->dtype()});
  } else if constexpr (requires { &D::views; }) {
    for (const Geometry& g : D::views(*inputs[0], attrs_of<D>(attrs)))
      out.push_back({g.sizes, inputs[0]->dtype()});
  } else {
    D::infer(inputs, attrs_of<D>(attrs), out);
  }
}

template <class D>
void views(const Tensor& base, const void* attrs, Outputs& out) {
  if constexpr (requires { &D::geometry; }) {
    out.push_back(make_alias(base, D::geometry(base, attrs_of<D>(attrs))));
  } else {
    for (const Geometry& g : D::views(base, attrs_of<D>(attrs))) out.push_back(make_alias(base, g));
  }
}
template <class D>
Outputs lower(Inputs inputs, const void* attrs) {
  return D::lower(inputs, attrs_of<D>(attrs));
}
template <class D>
constexpr auto lower_of() -> decltype(Op::lower) {
  if constexpr (HasLower<D>) return &lower<D>;
  else return nullptr;
}

template <class D>
ProductForm product(const void* attrs) {
  return D::product(attrs_of<D>(attrs));
}
template <class D>
constexpr auto product_of() -> decltype(Op::product) {
  if constexpr (HasProduct<D>) return &product<D>;
  else return nullptr;
}

template <class D>
constexpr auto views_of() -> decltype(Op::views) {
  if constexpr (D::family == Family::view) return &views<D>;
  else return nullptr;
}

template <class D>
Grads grad(const Saved& saved, const Grads& g) {
  if constexpr (requires { D::grad(saved, g); }) return D::grad(saved, g);
  else if constexpr (HasGrad<D>) return D::grad(saved, g[0]);
  else return {};
}

/// What Attrs::visit is given: `v("dims", self.dims)` shows an attribute that belongs to the meaning
/// of a call, `v.argument("sizes", self.sizes)` one that does not (see AttrVisitor::is_argument).
/// `double` is always an argument.
template <class Visitor>
struct AttrVisit {
  Visitor& visitor;
  void operator()(std::string_view name, auto& value) const { visitor.on(name, value); }
  void argument(std::string_view name, auto& value) const {
    if constexpr (requires { visitor.is_argument; }) {
      visitor.is_argument = true;
      visitor.on(name, value);
      visitor.is_argument = false;
    } else {
      visitor.on(name, value);
    }
  }
};

template <class D>
void visit_attrs(const void* attrs, AttrVisitor& visitor) {
  D::Attrs::visit(attrs_of<D>(attrs), AttrVisit<AttrVisitor>{visitor});
}

template <class D>
void read_attrs(void* attrs, AttrReader& reader) {
  auto& self = *new (attrs) typename D::Attrs();
  D::Attrs::visit(self, AttrVisit<AttrReader>{reader});
}

template <class D>
constexpr const SaveMask* saves() {
  if constexpr (requires { D::saves; }) return D::saves;
  else return nullptr;
}

template <class D>
constexpr Twice twice() {
  if constexpr (requires { D::twice; }) return D::twice;
  else return Twice::counts;
}

template <class D>
constexpr Op make(int number, int index) {
  static_assert(Definition<D>);
  constexpr bool elementwise = HasScalar<D> || requires { requires D::elementwise; };
  constexpr bool random = requires { requires D::random; };
  constexpr bool opaque = requires { requires D::opaque; };
  constexpr bool effect = requires { requires D::effect; };
  constexpr bool refuses_values = requires { requires D::refuses_values; };
  constexpr bool crosses = requires { requires D::crosses; } || opaque;
  return Op{.name = D::name,
            .family = D::family,
            .differentiable = HasGrad<D>,
            .type_rule = D::type_rule,
            .number = number,
            .index = index,
            .arity = D::arity,
            .saves = saves<D>(),
            .attrs_size = std::is_empty_v<typename D::Attrs> ? 0 : sizeof(typename D::Attrs),
            .infer = &infer<D>,
            .views = views_of<D>(),
            .grad = &grad<D>,
            .lower = lower_of<D>(),
            .visit_attrs = &visit_attrs<D>,
            .read_attrs = &read_attrs<D>,
            .samples = [] { return Samples(D::samples()); },
            .elementwise = elementwise,
            .random = random,
            .opaque = opaque,
            .effect = effect,
            .refuses_values = refuses_values,
            .crosses = crosses,
            .twice = twice<D>(),
            .product = product_of<D>()};
}

}  // namespace define

/// `apply<Sigmoid>(x)`, `apply<Sum>({.dims = {0}}, x)`.
template <class D, std::same_as<Tensor>... T>
  requires std::is_empty_v<typename D::Attrs>
Tensor apply(const T&... inputs) {
  static_assert(sizeof...(T) == D::arity || D::arity < 0);
  const Tensor* list[] = {&inputs...};
  const typename D::Attrs none{};
  return apply(op_of<D>, list, &none);
}
template <class D, std::same_as<Tensor>... T>
Tensor apply(const typename D::Attrs& attrs, const T&... inputs) {
  static_assert(sizeof...(T) == D::arity || D::arity < 0);
  const Tensor* list[] = {&inputs...};
  return apply(op_of<D>, list, &attrs);
}
template <class D, std::same_as<Tensor>... T>
Outputs apply_all(const typename D::Attrs& attrs, const T&... inputs) {
  const Tensor* list[] = {&inputs...};
  return apply_all(op_of<D>, list, &attrs);
}
template <class D, std::same_as<Tensor>... T>
Tensor& apply_inplace(const Tensor& self, const T&... others) {
  const Tensor* list[] = {&self, &others...};
  const typename D::Attrs none{};
  return apply_inplace(op_of<D>, list, &none);
}
template <class D, std::same_as<Tensor>... T>
Tensor& apply_inplace(const typename D::Attrs& attrs, const Tensor& self, const T&... others) {
  const Tensor* list[] = {&self, &others...};
  return apply_inplace(op_of<D>, list, &attrs);
}

// --- samples ---

/// A sample of a pointwise op of one input: the values, as one vector.
Samples sample_values(std::initializer_list<double> values);
/// Two inputs of equal length, plus the same with broadcasting.
Samples sample_pairs(std::initializer_list<double> a, std::initializer_list<double> b);
/// Deterministic f64 values in [low, high], without ties.
Tensor sample_tensor(IntArrayRef sizes, double low = -2, double high = 2);
template <class Attrs>
Sample sample(std::vector<Tensor> inputs, Attrs attrs) {
  return {std::move(inputs), std::make_shared<const Attrs>(attrs)};
}

}  // namespace grapnel
