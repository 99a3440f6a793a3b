/// How a convolution is cut into tiles: a function of its parameters alone, never of the number of
/// threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "grapnel/cpu/kernels/conv_impl.h"

namespace grapnel::kernels {

enum class Pass { forward, backward_data, backward_weights };

/// A part of the problem: as many images, channels and groups.
struct Part {
  int64_t n, c, o, groups;
};

/// Tiles are runs of `images` images times runs of `channels` of the channels that the pass can be
/// cut along: groups, or if there is only one the input channels for the gradient of the input and
/// the output channels otherwise.
struct Cut {
  Pass pass;
  const ConvParams& p;
  int64_t extent;  // of the channels to be cut
  int64_t images, channels;
  int64_t image_runs, channel_runs;

  Cut(Pass the_pass, const ConvParams& params)
      : pass(the_pass),
        p(params),
        extent(p.groups > 1                  ? p.groups
               : pass == Pass::backward_data ? p.c
                                             : p.o) {
    constexpr int64_t enough_tiles = 16, least_work = int64_t{1} << 21;  // multiplications
    const int64_t pixels = p.out_h() * p.out_w(),
                  weight_count = p.o * (p.c / p.groups) * p.kh * p.kw;
    const int64_t work = pixels * weight_count;  // per image
    images = std::max(divide_up(p.n, enough_tiles), divide_up(least_work, work));
    if (pass == Pass::backward_weights) {
      // Each run has its own sum of the gradient: few enough that adding and storing them is cheap.
      const int64_t most_runs = std::max<int64_t>(1, (int64_t{1} << 24) / weight_count);
      images = std::max({images, divide_up(256, pixels), divide_up(p.n, most_runs)});
    }
    images = std::min(images, p.n);
    image_runs = divide_up(p.n, images);

    const int64_t block = p.groups > 1 ? 1 : 32;
    const int64_t runs = std::min(divide_up(enough_tiles, image_runs), images * work / least_work);
    channels = divide_up(divide_up(extent, std::max<int64_t>(1, runs)), block) * block;
    channels = std::min(channels, extent);
    channel_runs = divide_up(extent, channels);
  }

  int64_t tiles() const { return image_runs * channel_runs; }

  Part part(int64_t image_run, int64_t channel_run) const {
    const int64_t n = std::min(images, p.n - image_run * images),
                  size = std::min(channels, extent - channel_run * channels);
    if (p.groups > 1) return {n, p.c / p.groups * size, p.o / p.groups * size, size};
    if (pass == Pass::backward_data) return {n, size, p.o, 1};
    return {n, p.c, size, 1};
  }

  // Where the data of a tile begins.
  int64_t first_c(int64_t run) const {
    return p.groups > 1                  ? p.c / p.groups * run * channels
           : pass == Pass::backward_data ? run * channels
                                         : 0;
  }
  int64_t first_o(int64_t run) const {
    return p.groups > 1                  ? p.o / p.groups * run * channels
           : pass == Pass::backward_data ? 0
                                         : run * channels;
  }
  int64_t src_at(int64_t image_run, int64_t run) const {
    return (image_run * images * p.c + first_c(run)) * p.h * p.w;
  }
  int64_t dst_at(int64_t image_run, int64_t run) const {
    return (image_run * images * p.o + first_o(run)) * p.out_h() * p.out_w();
  }
  /// A tile of what the pass computes: of dst, or of src for its gradient.
  Tile output(int64_t image_run, int64_t run) const {
    const Part size = part(image_run, run);
    if (pass == Pass::backward_data)
      return {src_at(image_run, run), size.n, size.c * p.h * p.w, p.c * p.h * p.w};
    const int64_t pixels = p.out_h() * p.out_w();
    return {dst_at(image_run, run), size.n, size.o * pixels, p.o * pixels};
  }
  /// The images that a run reads: of src, or of dst for the gradient of src.
  Tile input(int64_t image_run) const {
    const int64_t n = std::min(images, p.n - image_run * images);
    const int64_t size =
        pass == Pass::backward_data ? p.o * p.out_h() * p.out_w() : p.c * p.h * p.w;
    return {image_run * images * size, n, size, size};
  }
  int64_t weights_at(int64_t run) const {
    const int64_t in = p.groups > 1 ? 0 : first_c(run);
    return (first_o(run) * (p.c / p.groups) + in) * p.kh * p.kw;
  }
};

}  // namespace grapnel::kernels
