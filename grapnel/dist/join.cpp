#include "grapnel/dist/join.h"

#include "grapnel/base/place.h"
#include "grapnel/dist/reducer.h"
#include "grapnel/dist/replicas.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::dist {

/// What the ranks tell each other before each forward.
struct Round {
  std::vector<int> active;
  bool buffers = false;  ///< buffers will be copied
  bool syncs = false;    ///< a synchronised backward will follow
};

struct JoinAccess {
  static Round exchange(DataParallelModule& m, const ProcessGroup& channel, bool active) {
    const Tensor mine = from_vector<int64_t>({active, active && m.sync_, active && m.syncing_});
    Round round;
    const std::vector<Tensor> all = channel.all_gather(mine).wait();
    for (size_t r = 0; r < all.size(); ++r) {
      const std::vector<int64_t> q = to_vector<int64_t>(all[r]);
      if (q[0]) round.active.push_back(static_cast<int>(r));
      round.buffers |= q[1] != 0;
      round.syncs |= q[2] != 0;
    }
    if (!round.active.empty()) m.buffers_from_ = round.active.front();
    return round;
  }

  static void shadow(DataParallelModule& m, const Round& round) {
    if (round.syncs) m.reducer_->before_forward();
    if (const auto buffers = m.buffers_to_sync(); round.buffers && !buffers.empty())
      broadcast_tensors(buffers, m.buffer_channel_, m.buffers_from_);
    if (round.syncs) m.reducer_->shadow_pass();
  }

  static void run(DataParallelModule& m, const std::function<void()>& body,
                  const JoinOptions& options) {
    check(!m.reducer_->options().static_graph,
          "join: a rank without inputs cannot learn what a static graph looks like; leave "
          "static_graph out.");
    check(!m.on_forward_, "join: the model is inside join already.");
    const ProcessGroup channel = m.group().channel("join");
    Round last;
    const auto take_note = [&](const Round& round) {
      last = round;
      m.reducer_->set_divisor(options.divide_by_initial_world_size
                                  ? channel.size()
                                  : static_cast<int>(round.active.size()));
    };
    struct Restore {
      DataParallelModule& m;
      ~Restore() {
        m.on_forward_ = nullptr;
        m.buffers_from_ = 0;
        m.reducer_->set_divisor(m.group().size());
      }
    } restore{m};
    m.on_forward_ = [&](DataParallelModule& model) { take_note(exchange(model, channel, true)); };
    try {
      body();
    } catch (const std::exception& e) {
      // The others would wait for this rank.
      channel.abort(
          str("the body of join ended with an exception: ", base::with_places_inside(e.what())));
      throw;
    } catch (...) {
      channel.abort("the body of join ended with an exception that is no std::exception");
      throw;
    }
    while (true) {
      const Round round = exchange(m, channel, false);
      if (round.active.empty()) break;
      take_note(round);
      shadow(m, round);
    }
    if (last.active.empty()) return;
    std::vector<Tensor> state = m.inner_->parameters();
    for (const Tensor& t : m.inner_->buffers()) state.push_back(t);
    broadcast_tensors(state, channel, last.active.back());
  }
};

void join(DataParallelModule& model, const std::function<void()>& body,
          const JoinOptions& options) {
  JoinAccess::run(model, body, options);
}

}  // namespace grapnel::dist
