// f32 convolution: oneDNN, one tile per call. A tile is a run of images and, where the batch alone
// gives too few tiles, a run of channels. Inside a tile the layouts are those oneDNN likes best
// (blocks of channels); converting to and from them costs less than it brings, since a tile is
// small enough to stay in the cache.
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/base/hold_signals.h"
#include "grapnel/cpu/kernels/conv_cut.h"
#include "grapnel/cpu/kernels/conv_impl.h"
#include "grapnel/cpu/kernels/onednn.h"

namespace grapnel::kernels {
namespace {

using dnnl::memory;

enum Role { src, weights, dst };

// ---- One tile ----

/// One array of a tile: as it lies in the caller's memory, and as the convolution wants it.
struct Side {
  memory::desc plain, wanted;
  dnnl::reorder convert;  // empty if the two are the same
  memory::desc convert_scratchpad;
};

struct Plan {
  dnnl::primitive convolution;
  memory::desc scratchpad;
  std::array<Side, 3> sides;
  const Side& operator[](Role role) const { return sides[role]; }
};

std::array<memory::desc, 3> plain_layouts(const ConvParams& p, const Part& part) {
  const auto f32 = memory::data_type::f32;
  const int64_t in = p.h * p.w, out_h = p.out_h(), out_w = p.out_w(), taps = p.kh * p.kw,
                line = p.c / p.groups * taps;
  memory::dims sizes{part.o / part.groups, part.c / part.groups, p.kh, p.kw},
      steps{line, taps, p.kw, 1};
  if (part.groups > 1) {
    sizes.insert(sizes.begin(), part.groups);
    steps.insert(steps.begin(), part.o / part.groups * line);
  }
  return {memory::desc({part.n, part.c, p.h, p.w}, f32, memory::dims{p.c * in, in, p.w, 1}),
          memory::desc(sizes, f32, steps),
          memory::desc({part.n, part.o, out_h, out_w}, f32,
                       memory::dims{p.o * out_h * out_w, out_h * out_w, out_w, 1})};
}

dnnl::primitive_attr our_scratchpad() {
  // Without this a primitive writes to memory of its own and must not run on two threads at once.
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Side make_side(const memory::desc& plain, const memory::desc& wanted, bool is_output) {
  Side side{plain, wanted, {}, {}};
  if (plain == wanted) return side;
  const auto& engine = onednn_engine();
  const dnnl::reorder::primitive_desc desc(engine, is_output ? wanted : plain, engine,
                                           is_output ? plain : wanted, our_scratchpad());
  side.convert = dnnl::reorder(desc);
  side.convert_scratchpad = desc.scratchpad_desc();
  return side;
}

Plan make_plan(Pass pass, const ConvParams& p, const Part& part) {
  const std::array<memory::desc, 3> plain = plain_layouts(p, part);
  std::array<memory::desc, 3> any;
  for (size_t i = 0; i < 3; ++i)
    any[i] = memory::desc(plain[i].dims(), memory::data_type::f32, memory::format_tag::any);

  const auto algorithm = dnnl::algorithm::convolution_direct;
  const memory::dims strides{p.stride[0], p.stride[1]}, pad{p.pad[0], p.pad[1]};
  const memory::dims dilates{p.dilation[0] - 1, p.dilation[1] - 1};  // oneDNN counts the gaps
  const dnnl::primitive_attr attr = our_scratchpad();
  const auto& engine = onednn_engine();

  using Forward = dnnl::convolution_forward;
  const Forward::primitive_desc forward(
      Forward::desc(dnnl::prop_kind::forward_training, algorithm, any[src], any[weights], any[dst],
                    strides, dilates, pad, pad),
      attr, engine);
  const auto finish = [&](dnnl::primitive convolution, const memory::desc& scratchpad,
                          const memory::desc& wanted_src, const memory::desc& wanted_weights,
                          const memory::desc& wanted_dst) {
    return Plan{std::move(convolution),
                scratchpad,
                {make_side(plain[src], wanted_src, pass == Pass::backward_data),
                 make_side(plain[weights], wanted_weights, pass == Pass::backward_weights),
                 make_side(plain[dst], wanted_dst, pass == Pass::forward)}};
  };
  switch (pass) {
    case Pass::forward: {
      return finish(Forward(forward), forward.scratchpad_desc(), forward.src_desc(),
                    forward.weights_desc(), forward.dst_desc());
    }
    case Pass::backward_data: {
      using Backward = dnnl::convolution_backward_data;
      const Backward::primitive_desc desc(
          Backward::desc(algorithm, any[src], any[weights], any[dst], strides, dilates, pad, pad),
          attr, engine, forward);
      return finish(Backward(desc), desc.scratchpad_desc(), desc.diff_src_desc(),
                    desc.weights_desc(), desc.diff_dst_desc());
    }
    case Pass::backward_weights: {
      using Backward = dnnl::convolution_backward_weights;
      const Backward::primitive_desc desc(
          Backward::desc(algorithm, any[src], any[weights], any[dst], strides, dilates, pad, pad),
          attr, engine, forward);
      return finish(Backward(desc), desc.scratchpad_desc(), desc.src_desc(),
                    desc.diff_weights_desc(), desc.diff_dst_desc());
    }
  }
  GRAPNEL_ASSERT(false, "unknown pass");
}

std::shared_ptr<const Plan> plan_for(Pass pass, const ConvParams& p, const Part& part) {
  using Key = std::array<int64_t, 18>;
  // Making a plan takes up to a millisecond. Never destroyed: a thread may still convolve while the
  // process exits.
  static auto& plans = *new RecentlyUsed<Key, Plan, HashIntegers>(256);
  const Key key{static_cast<int64_t>(pass),
                part.n,
                part.c,
                part.o,
                part.groups,
                p.c,
                p.h,
                p.w,
                p.o,
                p.kh,
                p.kw,
                p.stride[0],
                p.stride[1],
                p.pad[0],
                p.pad[1],
                p.dilation[0],
                p.dilation[1],
                p.groups};
  return plans.get(key, [&] { return make_plan(pass, p, part); });
}

memory at(const memory::desc& desc, const void* data) {
  return memory(desc, onednn_engine(), const_cast<void*>(data));
}

memory scratchpad(const memory::desc& desc) {
  static constinit thread_local base::PerThread<Scratch> own_scratch;
  Scratch& scratch = own_scratch.get();
  return at(desc, scratch.get(std::max<size_t>(desc.get_size(), 1)));
}

void convert(const Side& side, const memory& from, const memory& to) {
  side.convert.execute(onednn_stream(),
                       {{DNNL_ARG_FROM, from},
                        {DNNL_ARG_TO, to},
                        {DNNL_ARG_SCRATCHPAD, scratchpad(side.convert_scratchpad)}});
}

void to_wanted(const Side& side, const float* plain, float* wanted) {
  convert(side, at(side.plain, plain), at(side.wanted, wanted));
}

void to_plain(const Side& side, const float* wanted, float* plain) {
  convert(side, at(side.wanted, wanted), at(side.plain, plain));
}

/// Runs one tile. src and dst are the caller's; the weights are already, or still, as the
/// convolution wants them.
void run_tile(Pass pass, const Plan& plan, const float* src_data, const float* weights_data,
              const float* dst_data) {
  static constinit thread_local base::PerThread<Scratch> own_src_scratch;
  Scratch& src_scratch = own_src_scratch.get();
  static constinit thread_local base::PerThread<Scratch> own_dst_scratch;
  Scratch& dst_scratch = own_dst_scratch.get();
  const auto buffer = [](const Side& side, Scratch& scratch, const float* plain) {
    return side.convert ? static_cast<float*>(scratch.get(side.wanted.get_size()))
                        : const_cast<float*>(plain);
  };
  float* const src_wanted = buffer(plan[src], src_scratch, src_data);
  float* const dst_wanted = buffer(plan[dst], dst_scratch, dst_data);
  if (plan[src].convert && pass != Pass::backward_data) to_wanted(plan[src], src_data, src_wanted);
  if (plan[dst].convert && pass != Pass::forward) to_wanted(plan[dst], dst_data, dst_wanted);

  const int src_arg = pass == Pass::backward_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC;
  const int weights_arg = pass == Pass::backward_weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
  const int dst_arg = pass == Pass::forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST;
  const base::HoldSignals hold;  // its generated code may use the stack register for something
                                 // else, as that of products does
  plan.convolution.execute(onednn_stream(), {{src_arg, at(plan[src].wanted, src_wanted)},
                                             {weights_arg, at(plan[weights].wanted, weights_data)},
                                             {dst_arg, at(plan[dst].wanted, dst_wanted)},
                                             {DNNL_ARG_SCRATCHPAD, scratchpad(plan.scratchpad)}});

  if (plan[src].convert && pass == Pass::backward_data)
    to_plain(plan[src], src_wanted, const_cast<float*>(src_data));
  if (plan[dst].convert && pass == Pass::forward)
    to_plain(plan[dst], dst_wanted, const_cast<float*>(dst_data));
}

// ---- All tiles ----

std::shared_ptr<const Plan> plan_for(const Cut& cut, int64_t image_run, int64_t channel_run) {
  return plan_for(cut.pass, cut.p, cut.part(image_run, channel_run));
}

template <class Body>
void for_each(int64_t count, Body body) {
  base::parallel_for(count, 1, [&](int64_t index, int64_t) {
    const OneThread guard;
    try {
      body(index);
    } catch (const dnnl::error& error) {
      if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
      GRAPNEL_ASSERT(false, "oneDNN: ", error.what(), " (status ", error.status, ")");
    }
  });
}

/// The weights as the convolution wants them: the caller's own, or a copy in `scratch`.
const float* wanted_weights(const Side& side, const float* plain, Scratch& scratch) {
  if (!side.convert) return plain;
  float* const wanted = static_cast<float*>(scratch.get(side.wanted.get_size()));
  to_wanted(side, plain, wanted);
  return wanted;
}

/// Images of an operand that is not in memory.
const float* filled(const TileFn& fill, Tile images) {
  static constinit thread_local base::PerThread<Scratch> own_scratch;
  Scratch& scratch = own_scratch.get();
  float* const values = scratch.floats(images.rows * images.cols + kTileMargin);
  images.local = values;
  fill(images);
  return values;
}

/// Forward and the gradient of the input: the weights are read by all image runs, so they are
/// converted once.
void run_with_weights(const Cut& cut, const float* src_data, const float* weights_data,
                      const float* dst_data, const TileFn& done, const TileFn& fill) {
  struct Prepared {
    Scratch scratch;
    memory::desc layout;
    const float* data;
  };
  std::vector<Prepared> prepared(static_cast<size_t>(cut.channel_runs));
  for_each(cut.channel_runs, [&](int64_t run) {
    const auto plan = plan_for(cut, 0, run);
    Prepared& w = prepared[static_cast<size_t>(run)];
    w.layout = (*plan)[weights].wanted;
    w.data = wanted_weights((*plan)[weights], weights_data + cut.weights_at(run), w.scratch);
  });
  for_each(cut.tiles(), [&](int64_t index) {
    const int64_t image_run = index / cut.channel_runs, run = index % cut.channel_runs;
    const auto plan = plan_for(cut, image_run, run);
    const Prepared& w = prepared[static_cast<size_t>(run)];
    const float* data = w.data;
    if ((*plan)[weights].wanted != w.layout) {  // the last run, if shorter, may like another layout
      static constinit thread_local base::PerThread<Scratch> own_scratch;
      Scratch& scratch = own_scratch.get();
      data = wanted_weights((*plan)[weights], weights_data + cut.weights_at(run), scratch);
    }
    const bool fills_src = fill && cut.pass == Pass::forward,
               fills_dst = fill && cut.pass == Pass::backward_data;
    const float* const src_tile =
        fills_src ? filled(fill, cut.input(image_run)) : src_data + cut.src_at(image_run, run);
    const float* const dst_tile =
        fills_dst ? filled(fill, cut.input(image_run)) : dst_data + cut.dst_at(image_run, run);
    run_tile(cut.pass, *plan, src_tile, data, dst_tile);
    done(cut.output(image_run, run));
  });
}

}  // namespace

void conv2d_f32(const ConvParams& p, const float* src_data, const float* weights_data,
                float* dst_data, const TileFn& done, const TileFn& fill) {
  run_with_weights(Cut(Pass::forward, p), src_data, weights_data, dst_data, done, fill);
}

void conv2d_backward_data_f32(const ConvParams& p, const float* grad_dst, const float* weights_data,
                              float* grad_src, const TileFn& done, const TileFn& fill) {
  run_with_weights(Cut(Pass::backward_data, p), grad_src, weights_data, grad_dst, done, fill);
}

void conv2d_backward_weights_f32(const ConvParams& p, const float* src_data, const float* grad_dst,
                                 float* grad_weights) {
  const Cut cut(Pass::backward_weights, p);
  const int64_t length = p.o * (p.c / p.groups) * p.kh * p.kw;
  Scratch memory_of_sums;
  float* const sums =
      cut.image_runs == 1 ? grad_weights : memory_of_sums.floats(cut.image_runs * length);
  for_each(cut.tiles(), [&](int64_t index) {
    const int64_t image_run = index / cut.channel_runs, run = index % cut.channel_runs;
    const auto plan = plan_for(cut, image_run, run);
    const Side& side = (*plan)[weights];
    static constinit thread_local base::PerThread<Scratch> own_scratch;
    Scratch& scratch = own_scratch.get();
    float* const sum = sums + image_run * length + cut.weights_at(run);
    float* const wanted =
        side.convert ? static_cast<float*>(scratch.get(side.wanted.get_size())) : sum;
    run_tile(cut.pass, *plan, src_data + cut.src_at(image_run, run), wanted,
             grad_dst + cut.dst_at(image_run, run));
    if (side.convert) to_plain(side, wanted, sum);
  });
  if (cut.image_runs == 1) return;
  add_parts(sums, cut.image_runs, length);
  std::copy_n(sums, length, grad_weights);
}

}  // namespace grapnel::kernels
