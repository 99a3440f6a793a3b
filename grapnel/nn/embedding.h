/// Embedding: a table of vectors, looked up by number.
#pragma once

#include <optional>

#include "grapnel/base/arg.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

struct EmbeddingOptions {
  EmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  GRAPNEL_ARG(int64_t, num_embeddings);
  GRAPNEL_ARG(int64_t, embedding_dim);
  /// The row that stays zero and gets no gradient; negative numbers count from the end.
  GRAPNEL_ARG(std::optional<int64_t>, padding_idx);
  /// Rows that are longer are shortened to this length, in place, before they are looked up.
  GRAPNEL_ARG(std::optional<double>, max_norm);
  /// The kind of norm that max_norm is about.
  GRAPNEL_ARG(double, norm_type) = 2;
};

/// For a table that exists already. Its padding row stays as it is and gets no gradient.
struct EmbeddingFromPretrainedOptions {
  EmbeddingFromPretrainedOptions(bool freeze = true) : freeze_(freeze) {}
  /// Whether the table is left as it is in training.
  GRAPNEL_ARG(bool, freeze);
  GRAPNEL_ARG(std::optional<int64_t>, padding_idx);
  GRAPNEL_ARG(std::optional<double>, max_norm);
  GRAPNEL_ARG(double, norm_type) = 2;
};

/// Row i of weight [num_embeddings, embedding_dim] for every number i of the input.
class EmbeddingImpl : public Cloneable<EmbeddingImpl> {
 public:
  explicit EmbeddingImpl(const EmbeddingOptions& options_);
  EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim)
      : EmbeddingImpl(EmbeddingOptions(num_embeddings, embedding_dim)) {}
  void reset() override;
  /// Normal with mean 0 and variance 1.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& indices);

  EmbeddingOptions options;
  Tensor weight;
};
class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  using Impl = EmbeddingImpl;
  static Embedding from_pretrained(const Tensor& embeddings,
                                   const EmbeddingFromPretrainedOptions& options = {});
};

}  // namespace grapnel::nn
