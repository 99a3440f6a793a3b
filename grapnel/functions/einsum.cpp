/// einsum: "bij,bjk->bik". Operands are contracted from left to right, each step one batched matrix
/// product.
#include <algorithm>
#include <array>
#include <string>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

namespace {

/// Labels are letters; dimensions under "..." get numbers from kEllipsis on, counted from the
/// right, so that they broadcast.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 256;

struct Term {
  Tensor value;
  Labels labels;  ///< one per dimension, distinct after take_diagonals
};

struct Equation {
  std::vector<std::string> inputs;
  std::optional<std::string> output;
};

bool contains(const Labels& labels, Label l) {
  return std::find(labels.begin(), labels.end(), l) != labels.end();
}
size_t find(const Labels& labels, Label l) {
  return static_cast<size_t>(std::find(labels.begin(), labels.end(), l) - labels.begin());
}

Equation parse(std::string_view text) {
  std::string compact;
  for (char c : text)
    if (c != ' ') compact += c;
  Equation equation;
  if (const size_t arrow = compact.find("->"); arrow != std::string::npos) {
    equation.output = compact.substr(arrow + 2);
    compact.resize(arrow);
  }
  for (size_t begin = 0;;) {
    const size_t comma = compact.find(',', begin);
    equation.inputs.push_back(compact.substr(begin, comma - begin));
    if (comma == std::string::npos) return equation;
    begin = comma + 1;
  }
}

/// The labels of one term; `hidden` dimensions stand under its ellipsis.
Labels labels_of(std::string_view term, int64_t hidden, std::string_view equation) {
  Labels labels;
  bool seen = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term.substr(i, 3) == "...") {
      check(!seen, "einsum: \"...\" appears twice in one term of \"", equation, "\".");
      seen = true;
      for (int64_t k = hidden; k-- > 0;) labels.push_back(kEllipsis + static_cast<Label>(k));
      i += 2;
    } else {
      const bool letter = (term[i] >= 'a' && term[i] <= 'z') || (term[i] >= 'A' && term[i] <= 'Z');
      check(letter, "einsum: '", term[i], "' in \"", equation,
            "\" is neither a letter nor part of \"...\", \",\" or \"->\".");
      labels.push_back(term[i]);
    }
  }
  return labels;
}

/// "ii" means the diagonal.
void take_diagonals(Term& term, std::string_view equation) {
  for (size_t i = 0; i < term.labels.size(); ++i) {
    for (size_t j = i + 1; j < term.labels.size();) {
      if (term.labels[i] != term.labels[j]) {
        ++j;
        continue;
      }
      const auto di = static_cast<int64_t>(i), dj = static_cast<int64_t>(j);
      check(term.value.size(di) == term.value.size(dj), "einsum: label '",
            static_cast<char>(term.labels[i]), "' of \"", equation, "\" stands for sizes ",
            term.value.size(di), " and ", term.value.size(dj), " of one operand.");
      term.value = term.value.diagonal(0, di, dj).movedim(-1, di);
      term.labels.erase(term.labels.begin() + static_cast<ptrdiff_t>(j));
    }
  }
}

/// Sums what no later term and not the output needs.
void sum_out(Term& term, const Labels& needed) {
  std::vector<int64_t> dims;
  Labels kept;
  for (size_t i = 0; i < term.labels.size(); ++i) {
    if (contains(needed, term.labels[i])) kept.push_back(term.labels[i]);
    else dims.push_back(static_cast<int64_t>(i));
  }
  if (dims.empty()) return;
  term.value = term.value.sum(dims);
  term.labels = kept;
}

int64_t size_of(const Term& term, Label l) {
  return contains(term.labels, l) ? term.value.size(static_cast<int64_t>(find(term.labels, l))) : 1;
}

/// The dimensions of `term` in the order of `labels`; those it lacks become size 1.
Tensor arranged(const Term& term, const Labels& labels) {
  std::vector<int64_t> order;
  std::vector<int64_t> missing;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (contains(term.labels, labels[i]))
      order.push_back(static_cast<int64_t>(find(term.labels, labels[i])));
    else missing.push_back(static_cast<int64_t>(i));
  }
  Tensor value =
      std::is_sorted(order.begin(), order.end()) ? term.value : term.value.permute(order);
  for (int64_t at : missing) value = value.unsqueeze(at);
  return value;
}

/// Batches of matrices: after the first `batch` dimensions the next `rows` ones count the rows, the
/// others the columns.
Tensor joined(const Tensor& value, size_t batch, size_t rows) {
  Shape sizes;
  int64_t first = 1, second = 1;
  for (size_t i = 0; i < static_cast<size_t>(value.dim()); ++i) {
    const int64_t size = value.size(static_cast<int64_t>(i));
    if (i < batch) sizes.push_back(size);
    else (i < batch + rows ? first : second) *= size;
  }
  sizes.push_back(first);
  sizes.push_back(second);
  return value.reshape(sizes);
}

Term contract(const Term& a, const Term& b, const Labels& needed) {
  // Batch labels stay and are in both; inner ones are in both and go; the others belong to one
  // side. A size of 1 against another is broadcast, so it counts as absent.
  Labels batch, inner, left, right;
  for (Label l : a.labels) {
    const bool both = contains(b.labels, l);
    if (both && !contains(needed, l) && size_of(a, l) == size_of(b, l)) inner.push_back(l);
    else if (both) batch.push_back(l);
    else left.push_back(l);
  }
  for (Label l : b.labels)
    if (!contains(a.labels, l)) right.push_back(l);

  auto in_order = [](std::initializer_list<const Labels*> parts) {
    Labels all;
    for (const Labels* part : parts) all.insert(all.end(), part->begin(), part->end());
    return all;
  };
  Tensor product;
  if (inner.empty()) {
    // Nothing is summed: a product of elements, with the dimensions of one side missing in the
    // other.
    const Labels all = in_order({&batch, &left, &right});
    product = arranged(a, all) * arranged(b, all);
  } else {
    product =
        matmul(joined(arranged(a, in_order({&batch, &left, &inner})), batch.size(), left.size()),
               joined(arranged(b, in_order({&batch, &inner, &right})), batch.size(), inner.size()));
    Shape sizes;
    for (size_t i = 0; i < batch.size(); ++i)
      sizes.push_back(product.size(static_cast<int64_t>(i)));
    for (Label l : left) sizes.push_back(size_of(a, l));
    for (Label l : right) sizes.push_back(size_of(b, l));
    product = product.reshape(sizes);
  }
  Term result{product, in_order({&batch, &left, &right})};
  sum_out(result, needed);
  return result;
}

void check_sizes(const std::vector<Term>& terms, std::string_view equation) {
  std::array<int64_t, kEllipsis + kMaxRank> sizes;
  sizes.fill(1);
  for (const Term& term : terms)
    for (size_t i = 0; i < term.labels.size(); ++i) {
      int64_t& known = sizes[static_cast<size_t>(term.labels[i])];
      const int64_t size = term.value.size(static_cast<int64_t>(i));
      const bool hidden = term.labels[i] >= kEllipsis;
      if (!(size == known || size == 1 || known == 1)) [[unlikely]]
        fail("einsum: ",
             hidden ? "a dimension under \"...\""
                    : str("label '", static_cast<char>(term.labels[i]), "'"),
             " of \"", equation, "\" stands for sizes ", known, " and ", size, ".");
      if (size != 1) known = size;
    }
}

/// Without "->": the ellipsis, then the letters that appear once, in alphabetical order.
Labels implied_output(const std::vector<Labels>& inputs, int64_t hidden) {
  std::array<int, kEllipsis> count{};
  for (const Labels& labels : inputs)
    for (Label l : labels)
      if (l < kEllipsis) ++count[static_cast<size_t>(l)];
  Labels output;
  for (int64_t k = hidden; k-- > 0;) output.push_back(kEllipsis + static_cast<Label>(k));
  for (Label l = 0; l < kEllipsis; ++l)
    if (count[static_cast<size_t>(l)] == 1) output.push_back(l);
  return output;
}

Tensor evaluate(std::string_view text, TensorList operands) {
  const Equation equation = parse(text);
  check(equation.inputs.size() == operands.size(), "einsum: \"", text, "\" has ",
        equation.inputs.size(), " terms for ", operands.size(), " operands.");
  std::vector<Term> terms;
  std::vector<Labels> written;
  int64_t hidden = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const std::string& term = equation.inputs[i];
    const bool ellipsis = term.find("...") != std::string::npos;
    const auto letters = static_cast<int64_t>(term.size()) - (ellipsis ? 3 : 0);
    check(ellipsis ? operands[i].dim() >= letters : operands[i].dim() == letters, "einsum: term \"",
          term, "\" names ", letters, " dimensions but operand ", i, " has shape ",
          operands[i].shape(), ".");
    hidden = std::max(hidden, ellipsis ? operands[i].dim() - letters : 0);
    written.push_back(labels_of(term, ellipsis ? operands[i].dim() - letters : 0, text));
    terms.push_back({operands[i], written.back()});
    take_diagonals(terms.back(), text);
  }
  check_sizes(terms, text);
  const Labels output =
      equation.output ? labels_of(*equation.output, hidden, text) : implied_output(written, hidden);
  for (size_t i = 0; i < output.size(); ++i) {
    const bool known = std::any_of(terms.begin(), terms.end(),
                                   [&](const Term& t) { return contains(t.labels, output[i]); });
    check(known && find(output, output[i]) == i, "einsum: output label '",
          static_cast<char>(output[i]), "' of \"", text, "\" ",
          known ? "appears twice." : "is in no input.");
  }

  Term result = terms[0];
  for (size_t i = 0;; ++i) {
    Labels needed = output;
    for (size_t j = i + 1; j < terms.size(); ++j)
      needed.insert(needed.end(), terms[j].labels.begin(), terms[j].labels.end());
    sum_out(result, needed);
    if (i + 1 == terms.size()) break;
    // Seen from the second term, what the rest needs does not include the term itself.
    Labels later = output;
    for (size_t j = i + 2; j < terms.size(); ++j)
      later.insert(later.end(), terms[j].labels.begin(), terms[j].labels.end());
    Term next = terms[i + 1];
    Labels with_result = later;
    with_result.insert(with_result.end(), result.labels.begin(), result.labels.end());
    sum_out(next, with_result);
    result = contract(result, next, later);
  }
  return arranged(result, output);
}

}  // namespace

Tensor einsum(std::string_view equation, TensorList operands) {
  GRAPNEL_CALL_SITE;
  check(!operands.empty(), "einsum: needs at least one operand.");
  return evaluate(equation, operands);
}
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands) {
  GRAPNEL_CALL_SITE;
  return einsum(equation, TensorList(operands.begin(), operands.size()));
}

}  // namespace grapnel
