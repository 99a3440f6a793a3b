#include "grapnel/nn/embedding.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/nn/functional.h"
#include "grapnel/nn/init.h"

namespace grapnel::nn {

EmbeddingImpl::EmbeddingImpl(const EmbeddingOptions& options_) : options(options_) {
  const int64_t n = options.num_embeddings();
  check(n > 0 && options.embedding_dim() > 0,
        "Embedding: num_embeddings and embedding_dim must be positive, got ", n, " and ",
        options.embedding_dim(), ".");
  if (auto& padding = options.padding_idx()) {
    check(*padding >= -n && *padding < n, "Embedding: padding_idx must be in [", -n, ", ", n,
          "), got ", *padding, ".");
    if (*padding < 0) *padding += n;
  }
  EmbeddingImpl::reset();
}

void EmbeddingImpl::reset() {
  weight = register_parameter("weight", empty({options.num_embeddings(), options.embedding_dim()}));
  reset_parameters();
}

void EmbeddingImpl::reset_parameters() {
  init::normal_(weight);
  if (!options.padding_idx()) return;
  NoGradGuard no_grad;
  weight[*options.padding_idx()].zero_();
}

void EmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::Embedding(num_embeddings=" << options.num_embeddings()
         << ", embedding_dim=" << options.embedding_dim();
  if (options.padding_idx()) stream << ", padding_idx=" << *options.padding_idx();
  if (options.max_norm()) stream << ", max_norm=" << *options.max_norm();
  if (options.norm_type() != 2) stream << ", norm_type=" << options.norm_type();
  stream << ')';
}

Tensor EmbeddingImpl::forward(const Tensor& indices) {
  if (options.max_norm())
    functional::embedding_renorm_(weight, indices, *options.max_norm(), options.norm_type());
  return embedding(weight, indices, options.padding_idx().value_or(-1));
}

Embedding Embedding::from_pretrained(const Tensor& embeddings,
                                     const EmbeddingFromPretrainedOptions& options) {
  check(embeddings.dim() == 2,
        "Embedding: the table must be [num_embeddings, embedding_dim], got shape ",
        embeddings.shape(), ".");
  Embedding out(EmbeddingOptions(embeddings.size(0), embeddings.size(1))
                    .padding_idx(options.padding_idx())
                    .max_norm(options.max_norm())
                    .norm_type(options.norm_type()));
  out->weight.set_data(embeddings.detach());
  out->weight.set_requires_grad(!options.freeze());
  return out;
}

}  // namespace grapnel::nn
