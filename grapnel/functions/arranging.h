/// Elements in another arrangement: repeated, cut into windows, put on a diagonal, spread to grids.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "grapnel/functions/functions.h"

namespace grapnel {

/// A view with two dimensions exchanged, like transpose.
Tensor swapaxes(const Tensor& x, int64_t axis0, int64_t axis1);
/// A view with two dimensions exchanged, like transpose.
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1);
/// A view with one dimension moved to another place, like movedim.
Tensor moveaxis(const Tensor& x, int64_t source, int64_t destination);
/// x once per count and dimension; with fewer counts than dimensions the first ones stay.
Tensor tile(const Tensor& x, IntArrayRef dims);
/// Every element (of the flat tensor, unless `dim` is given) several times behind each other.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
/// As often as `repeats` says, one count for each element. Its size depends on values, so it ends a
/// recording.
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
/// A vector on a diagonal of a matrix of zeros, or the diagonal of a matrix.
Tensor diag(const Tensor& x, int64_t diagonal = 0);
/// The last dimension on the diagonals of matrices of zeros.
Tensor diag_embed(const Tensor& x, int64_t offset = 0);
/// Vectors as the coordinates of a grid: one tensor for each, in the shape of the grid. `indexing`
/// is "ij", or "xy" to exchange the first two.
std::vector<Tensor> meshgrid(TensorList tensors, std::string_view indexing = "ij");
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> tensors,
                             std::string_view indexing = "ij");
/// Views of all windows of `size` elements along `dim`, every `step` elements; they become the last
/// dimension.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
/// Tensors one above the other: along the first dimension, which vectors get.
Tensor vstack(TensorList tensors);
Tensor vstack(std::initializer_list<Tensor> tensors);
/// Tensors side by side: along the second dimension, vectors along their only one.
Tensor hstack(TensorList tensors);
Tensor hstack(std::initializer_list<Tensor> tensors);

}  // namespace grapnel
