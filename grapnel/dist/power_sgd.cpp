#include "grapnel/dist/power_sgd.h"

#include <cmath>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/warn.h"
#include "grapnel/dist/hooks.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/functions/random.h"

namespace grapnel::dist::hooks {

namespace {

/// Removes from each column what lies along the columns before it, and scales it to length 1.
void gram_schmidt(const Tensor& a, double epsilon) {
  const int64_t k = a.size(2);
  for (int64_t i = 0; i < k; ++i) {
    const Tensor column = a.narrow(2, i, 1);
    const Tensor length = (column * column).sum({1}, true).sqrt() + epsilon;
    // A zero column has no direction; dividing by one leaves it as it is.
    column.div_(where(length == 0, ones_like(length), length));
    if (i + 1 == k) break;
    const Tensor rest = a.narrow(2, i + 1, k - i - 1);
    rest.sub_(bmm(column, bmm(column.transpose(1, 2), rest)));
  }
}

}  // namespace

void orthogonalize(const Tensor& matrices, double epsilon) {
  NoGradGuard no_grad;
  const bool narrow = matrices.dtype() == kFloat16 || matrices.dtype() == kBFloat16;
  if (matrices.size(2) <= 2 || narrow) return gram_schmidt(matrices, epsilon);
  // Twice is as good as a QR decomposition: the second round removes what rounding left in the
  // first.
  gram_schmidt(matrices, 0);
  gram_schmidt(matrices, 0);
}

PowerSGDState::PowerSGDState(PowerSGDOptions options, ProcessGroup group)
    : options_(std::move(options)), group_(std::move(group)), generator_(options_.random_seed) {
  check(options_.matrix_approximation_rank >= 1,
        "PowerSGD: matrix_approximation_rank must be positive, got ",
        options_.matrix_approximation_rank, ".");
  check(options_.compression_stats_logging_frequency >= 1,
        "PowerSGD: compression_stats_logging_frequency must be positive, got ",
        options_.compression_stats_logging_frequency, ".");
  check(options_.start_powerSGD_iter > 1 || !(options_.use_error_feedback || options_.warm_start),
        "PowerSGD: with use_error_feedback or warm_start, start_powerSGD_iter must be 2 or more, "
        "got ",
        options_.start_powerSGD_iter, ": buckets are laid out anew after the first iteration.");
}

PowerSGDState::Memory& PowerSGDState::memory(const std::string& parameter) {
  auto& entry = memories_[parameter];
  if (!entry) entry = std::make_shared<Memory>();
  return *entry;
}

struct PowerSGDAccess {
  static std::shared_ptr<PowerSGDState::Memory> memory(PowerSGDState& state,
                                                       const std::string& parameter) {
    state.memory(parameter);
    return state.memories_[parameter];
  }
  static void count(PowerSGDState& state, int64_t before, int64_t after) {
    state.stats_.elements_before += before;
    state.stats_.elements_after += after;
  }
  static void advance(PowerSGDState& state, const GradBucket& bucket) {
    if (!bucket.is_last()) return;
    ++state.stats_.iteration;
    const PowerSGDOptions& o = state.options_;
    if (state.stats_.iteration <= o.start_powerSGD_iter ||
        state.stats_.iteration < state.next_report_)
      return;
    state.next_report_ = state.stats_.iteration + o.compression_stats_logging_frequency;
    if (o.on_report) o.on_report(state.stats_);
  }
};

namespace {

using Memory = std::shared_ptr<PowerSGDState::Memory>;

DType error_type(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// Matrices of one shape that are compressed together.
struct Batch {
  int64_t n = 0, m = 0, k = 0;
  std::vector<size_t> members;  ///< places in the lists below
  Tensor matrices;              ///< [b, n, m]
  Tensor p, q, local_q;         ///< [b, n, k], [b, m, k]; local_q before summing
};

/// What one bucket's compression needs until it is finished.
struct Job {
  PowerSGDOptions options;
  ProcessGroup group;
  Tensor buffer;
  std::vector<Tensor> parts;     ///< places in the buffer
  std::vector<Memory> memories;  ///< one per part
  /// The part with the error added, before compression; empty without feedback.
  std::vector<Tensor> with_error;
  std::vector<size_t> plain;  ///< parts that are sent as they are
  std::vector<Batch> batches;
  /// Where P and Q of each compressed matrix are kept; parallel to parts.
  std::vector<Memory> factors;
  Tensor p_memory, q_memory, plain_memory;
  std::function<void(Job&)> write;  ///< copies the approximations into the buffer
};

/// Step 2: adds what earlier steps lost.
void feed_back(Job& job) {
  if (!job.options.use_error_feedback) return;
  for (size_t i = 0; i < job.parts.size(); ++i) {
    Tensor a = job.parts[i].to(error_type(job.buffer.dtype())).clone();
    if (const Tensor& error = job.memories[i]->error; error.defined() && error.shape() == a.shape())
      a.add_(error);
    job.parts[i].copy_(a);
    job.with_error.push_back(std::move(a));
  }
}

/// Step 5: lays P and Q of all batches side by side and gives Q its first value.
void make_factors(Job& job, Generator& generator) {
  int64_t p_count = 0, q_count = 0;
  for (const Batch& b : job.batches) {
    p_count += static_cast<int64_t>(b.members.size()) * b.n * b.k;
    q_count += static_cast<int64_t>(b.members.size()) * b.m * b.k;
  }
  job.p_memory = empty({p_count}, job.buffer.dtype());
  job.q_memory = empty({q_count}, job.buffer.dtype());
  int64_t p_at = 0, q_at = 0;
  for (Batch& b : job.batches) {
    const auto count = static_cast<int64_t>(b.members.size());
    b.p = job.p_memory.narrow(0, p_at, count * b.n * b.k).view({count, b.n, b.k});
    b.q = job.q_memory.narrow(0, q_at, count * b.m * b.k).view({count, b.m, b.k});
    p_at += count * b.n * b.k;
    q_at += count * b.m * b.k;
    for (int64_t i = 0; i < count; ++i) {
      const Tensor& last = job.factors[b.members[static_cast<size_t>(i)]]->q;
      const Tensor q = b.q[i];
      if (job.options.warm_start && last.defined() && last.shape() == q.shape()) q.copy_(last);
      else random::normal_(q, 0, 1, &generator);
    }
    orthogonalize(b.q, job.options.orthogonalization_epsilon);
  }
}

void multiply_p(Job& job) {
  for (const Batch& b : job.batches) b.p.copy_(bmm(b.matrices, b.q));
}

/// Steps 6 and 7: P has been summed.
void multiply_q(Job& job) {
  for (Batch& b : job.batches) {
    orthogonalize(b.p, job.options.orthogonalization_epsilon);
    b.q.copy_(bmm(b.matrices.transpose(1, 2), b.p));
    if (job.options.local_error_only) b.local_q = b.q.clone();
  }
}

/// Steps 8 to 10: Q has been summed.
void finish(Job& job) {
  job.q_memory.div_(job.group.size());
  if (job.plain_memory.defined()) {
    job.plain_memory.div_(job.group.size());
    int64_t at = 0;
    for (size_t i : job.plain) {
      const Tensor& part = job.parts[i];
      part.copy_(job.plain_memory.narrow(0, at, part.numel()).view(part.sizes()));
      at += part.numel();
    }
  }
  job.write(job);
  for (const Batch& b : job.batches)
    for (size_t i = 0; i < b.members.size(); ++i) {
      Memory& factor = job.factors[b.members[i]];
      factor->p = job.options.warm_start ? b.p[static_cast<int64_t>(i)].clone() : Tensor();
      factor->q = job.options.warm_start ? b.q[static_cast<int64_t>(i)].clone() : Tensor();
    }
}

/// Step 9 for each part: what its value in the buffer, or this rank's own projection of it, has
/// lost.
void remember_errors(Job& job, const std::vector<Tensor>& kept) {
  for (size_t i = 0; i < job.with_error.size(); ++i)
    job.memories[i]->error = job.with_error[i] - kept[i];
}

std::vector<Tensor> widened_parts(const Job& job) {
  std::vector<Tensor> out;
  for (const Tensor& part : job.parts) out.push_back(part.to(error_type(part.dtype())));
  return out;
}

/// Before compression begins.
Future<Tensor> send_whole(PowerSGDState& state, GradBucket& bucket) {
  PowerSGDAccess::advance(state, bucket);
  return AllReduce::run(bucket, bucket.channel_of(state.group()));
}

Future<Tensor> run(const std::shared_ptr<Job>& job, PowerSGDState& state,
                   const GradBucket& bucket) {
  make_factors(*job, state.generator());
  PowerSGDAccess::advance(state, bucket);
  // Sent first, so that it travels while the first product is made.
  std::optional<Future<std::vector<Tensor>>> plain;
  if (job->plain_memory.defined()) plain = job->group.all_reduce(job->plain_memory).future();
  multiply_p(*job);
  return job->group.all_reduce(job->p_memory)
      .future()
      .then([job, plain](const std::vector<Tensor>&) {
        multiply_q(*job);
        return job->group.all_reduce(job->q_memory)
            .future()
            .then([job, plain](const std::vector<Tensor>&) {
              if (plain) plain->wait();
              finish(*job);
              return job->buffer;
            });
      });
}

/// With what earlier steps lost added to the bucket.
std::shared_ptr<Job> make_job(PowerSGDState& state, GradBucket& bucket) {
  auto job = std::make_shared<Job>();
  job->options = state.options();
  job->group = bucket.channel_of(state.group());
  job->buffer = bucket.buffer();
  job->parts = bucket.gradients();
  for (const std::string& name : bucket.parameter_names())
    job->memories.push_back(PowerSGDAccess::memory(state, name));
  feed_back(*job);
  return job;
}

}  // namespace

Future<Tensor> PowerSGD::operator()(PowerSGDState& state, GradBucket& bucket) const {
  NoGradGuard no_grad;
  const PowerSGDOptions& o = state.options();
  if (state.iter() < o.start_powerSGD_iter) return send_whole(state, bucket);
  const auto job = make_job(state, bucket);
  job->factors = job->memories;
  std::vector<Tensor> plain;
  for (size_t i = 0; i < job->parts.size(); ++i) {
    const Tensor& part = job->parts[i];
    const int64_t n = part.dim() > 0 ? part.size(0) : 1, m = n > 0 ? part.numel() / n : 0;
    const int64_t k = std::min({n, m, o.matrix_approximation_rank});
    const bool compress =
        part.dim() > 1 &&
        static_cast<double>((n + m) * k) * o.min_compression_rate < static_cast<double>(n * m);
    PowerSGDAccess::count(state, part.numel(), compress ? (n + m) * k : part.numel());
    if (!compress) {
      job->plain.push_back(i);
      plain.push_back(part.reshape({-1}));
      continue;
    }
    const auto same = std::find_if(job->batches.begin(), job->batches.end(),
                                   [&](const Batch& b) { return b.n == n && b.m == m; });
    if (o.batch_tensors_with_same_shape && same != job->batches.end()) {
      same->members.push_back(i);
    } else {
      Batch batch;
      batch.n = n;
      batch.m = m;
      batch.k = k;
      batch.members = {i};
      job->batches.push_back(std::move(batch));
    }
  }
  if (!plain.empty()) job->plain_memory = cat(plain);
  for (Batch& b : job->batches) {
    std::vector<Tensor> matrices;
    for (size_t i : b.members) matrices.push_back(job->parts[i].reshape({b.n, b.m}));
    b.matrices = matrices.size() == 1 ? matrices[0].unsqueeze(0) : stack(matrices);
  }
  job->write = [](Job& j) {
    std::vector<Tensor> kept;
    if (j.options.local_error_only && j.options.use_error_feedback)
      kept = j.with_error;  // parts sent whole lose nothing
    for (const Batch& b : j.batches) {
      const Tensor approximation = bmm(b.p, b.q.transpose(1, 2));
      const Tensor own = b.local_q.defined() ? bmm(b.p, b.local_q.transpose(1, 2)) : Tensor();
      for (size_t i = 0; i < b.members.size(); ++i) {
        const Tensor& part = j.parts[b.members[i]];
        part.copy_(approximation[static_cast<int64_t>(i)].view(part.sizes()));
        if (!kept.empty())
          kept[b.members[i]] =
              own[static_cast<int64_t>(i)].view(part.sizes()).to(error_type(part.dtype()));
      }
    }
    remember_errors(j, kept.empty() ? widened_parts(j) : kept);
  };
  return run(job, state, bucket);
}

Future<Tensor> BatchedPowerSGD::operator()(PowerSGDState& state, GradBucket& bucket) const {
  NoGradGuard no_grad;
  const PowerSGDOptions& o = state.options();
  if (state.iter() < o.start_powerSGD_iter) return send_whole(state, bucket);
  const auto job = make_job(state, bucket);
  const int64_t count = job->buffer.numel();
  auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  while (side * side < count) ++side;
  const int64_t k = std::min(o.matrix_approximation_rank, side);
  PowerSGDAccess::count(state, count, 2 * side * k);
  const Tensor square = zeros({side * side}, job->buffer.dtype());
  square.narrow(0, 0, count).copy_(job->buffer);
  Batch batch;
  batch.n = batch.m = side;
  batch.k = k;
  batch.members = {0};
  batch.matrices = square.view({1, side, side});
  job->batches.push_back(std::move(batch));
  // The factors belong to the bucket as a whole; its first parameter stands for it.
  job->factors = {PowerSGDAccess::memory(state, bucket.parameter_names()[0] + " and its bucket")};
  job->write = [count](Job& j) {
    const Batch& b = j.batches[0];
    const auto flat = [&](const Tensor& q) {
      return bmm(b.p, q.transpose(1, 2)).view({-1}).narrow(0, 0, count);
    };
    j.buffer.copy_(flat(b.q));
    if (!j.options.use_error_feedback) return;
    if (!b.local_q.defined()) return remember_errors(j, widened_parts(j));
    const Tensor own = flat(b.local_q).to(error_type(j.buffer.dtype()));
    std::vector<Tensor> kept;
    for (const Tensor& part : j.parts)
      kept.push_back(
          own.as_strided(part.sizes(), part.strides(),
                         own.storage_offset() + part.storage_offset() - j.buffer.storage_offset()));
    remember_errors(j, kept);
  };
  return run(job, state, bucket);
}

// --- saving ---

namespace {

/// The numbers among the options, each under its name.
void visit_options(auto& o, auto&& v) {
  v("matrix_approximation_rank", o.matrix_approximation_rank);
  v("start_powerSGD_iter", o.start_powerSGD_iter);
  v("min_compression_rate", o.min_compression_rate);
  v("use_error_feedback", o.use_error_feedback);
  v("warm_start", o.warm_start);
  v("orthogonalization_epsilon", o.orthogonalization_epsilon);
  v("random_seed", o.random_seed);
  v("compression_stats_logging_frequency", o.compression_stats_logging_frequency);
  v("batch_tensors_with_same_shape", o.batch_tensors_with_same_shape);
  v("local_error_only", o.local_error_only);
}
Tensor whole(int64_t value) { return full({}, value, kInt64); }

}  // namespace

nn::StateDict PowerSGDState::state_dict() const {
  if (group_) base::warn("PowerSGD: the process group is not part of the saved state.");
  nn::StateDict state;
  visit_options(options_, [&](const char* name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, double>)
      state.insert(str("options/", name), full({}, value, kFloat64));
    else state.insert(str("options/", name), whole(static_cast<int64_t>(value)));
  });
  state.insert("generator", generator_.get_state());
  state.insert("iter", whole(stats_.iteration));
  state.insert("elements_before", whole(stats_.elements_before));
  state.insert("elements_after", whole(stats_.elements_after));
  state.insert("next_report", whole(next_report_));
  for (const auto& [name, memory] : memories_) {
    if (memory->error.defined()) state.insert("error/" + name, memory->error.clone());
    if (memory->p.defined()) state.insert("p/" + name, memory->p.clone());
    if (memory->q.defined()) state.insert("q/" + name, memory->q.clone());
  }
  return state;
}

void PowerSGDState::load_state_dict(const nn::StateDict& state) {
  const auto get = [&](const std::string& name) -> const Tensor& {
    const Tensor* t = state.find(name);
    check(t != nullptr, "PowerSGD: the saved state has no entry ", name, ".");
    return *t;
  };
  PowerSGDState fresh = *this;
  visit_options(fresh.options_, [&](const char* name, auto& value) {
    const Tensor& t = get(str("options/", name));
    value = t.item<std::decay_t<decltype(value)>>();
  });
  fresh.generator_ = Generator();
  fresh.generator_.set_state(get("generator"));
  fresh.stats_ = {get("iter").item<int64_t>(), get("elements_before").item<int64_t>(),
                  get("elements_after").item<int64_t>()};
  fresh.next_report_ = get("next_report").item<int64_t>();
  fresh.memories_.clear();
  for (const auto& item : state) {
    const std::string& key = item.key();
    const size_t slash = key.find('/');
    if (slash == std::string::npos || key.starts_with("options/")) continue;
    Memory& memory = fresh.memory(key.substr(slash + 1));
    (key[0] == 'e' ? memory.error : key[0] == 'p' ? memory.p : memory.q) = item.value().clone();
  }
  if (group_)
    base::warn(
        "PowerSGD: the process group is not part of the saved state; the wrapper's own group is "
        "used from now on.");
  fresh.group_ = {};
  *this = std::move(fresh);
}

}  // namespace grapnel::dist::hooks
