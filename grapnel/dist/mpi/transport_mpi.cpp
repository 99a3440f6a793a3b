/// The transport: lines, tickets and notes. This folder is the only one that knows MPI.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "grapnel/base/half.h"
#include "grapnel/dist/mpi/direct_sum.h"
#include "grapnel/dist/mpi/transport.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace grapnel::dist {

namespace {

/// Long sums are made in pieces that are summed while they are in the cache, several under way at a
/// time.
constexpr int64_t kPieceBytes = 256 * 1024;

// --- 16-bit arithmetic, which MPI does not have ---

// Sums are what training sends; made for several instruction sets, they keep up with memory.
#define GRAPNEL_EACH_ISA [[gnu::target_clones("arch=skylake-avx512", "arch=haswell", "default")]]
#if defined(__x86_64__)
// The processor's conversions round like ours, and two halves have no sum that is subnormal in
// float, so its modes do not matter.
[[gnu::target("avx2,f16c")]] int add_eight_at_a_time(const Half* a, Half* b, int n) {
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
    const __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(b + i),
                     _mm256_cvtps_ph(_mm256_add_ps(x, y), _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}
#endif
void add(const Half* __restrict a, Half* __restrict b, int n) {
  int i = 0;
#if defined(__x86_64__)
  static const bool has_conversions =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (has_conversions) i = add_eight_at_a_time(a, b, n);
#endif
  for (; i < n; ++i) b[i] = Half(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}
GRAPNEL_EACH_ISA void add(const BFloat16* __restrict a, BFloat16* __restrict b, int n) {
  for (int i = 0; i < n; ++i) b[i] = BFloat16(static_cast<float>(a[i]) + static_cast<float>(b[i]));
}

template <class T, ReduceOp op>
void combine(void* in, void* inout, int* length, MPI_Datatype*) {
  const T* a = static_cast<const T*>(in);
  T* b = static_cast<T*>(inout);
  if constexpr (op == ReduceOp::sum) return add(a, b, *length);
  for (int i = 0; i < *length; ++i) {
    const float x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
    if constexpr (op == ReduceOp::product) b[i] = T(x * y);
    else if constexpr (op == ReduceOp::min) b[i] = T(x < y ? x : y);
    else b[i] = T(x > y ? x : y);
  }
}

template <class T>
MPI_Op half_op(ReduceOp op) {
  static const std::array<MPI_Op, 4> ops = [] {
    std::array<MPI_Op, 4> made{};
    MPI_Op_create(&combine<T, ReduceOp::sum>, 1, &made[0]);
    MPI_Op_create(&combine<T, ReduceOp::product>, 1, &made[1]);
    MPI_Op_create(&combine<T, ReduceOp::min>, 1, &made[2]);
    MPI_Op_create(&combine<T, ReduceOp::max>, 1, &made[3]);
    return made;
  }();
  return ops[static_cast<size_t>(op)];
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::Bool: return MPI_C_BOOL;
    case DType::UInt8: return MPI_UINT8_T;
    case DType::Int32: return MPI_INT32_T;
    case DType::Int64: return MPI_INT64_T;
    case DType::Float16:
    case DType::BFloat16: return MPI_UINT16_T;
    case DType::Float32: return MPI_FLOAT;
    case DType::Float64: return MPI_DOUBLE;
  }
  __builtin_unreachable();
}

MPI_Op op_of(DType dtype, ReduceOp op) {
  if (dtype == DType::Float16) return half_op<Half>(op);
  if (dtype == DType::BFloat16) return half_op<BFloat16>(op);
  if (dtype == DType::Bool) return op == ReduceOp::sum || op == ReduceOp::max ? MPI_LOR : MPI_LAND;
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::product: return MPI_PROD;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
  }
  __builtin_unreachable();
}

/// Open MPI's plugins find its symbols only if they are global, and this module was loaded
/// privately.
void show_to_plugins() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) && info.dli_fname)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

// --- the transport ---

constexpr int kNoteSize = 1024;

struct Pending {
  std::vector<MPI_Request> requests;
  std::vector<Expected> expected;
  std::unique_ptr<DirectSum> sum;
  MPI_Datatype whole = MPI_DATATYPE_NULL;  ///< made for this operation
  std::unique_ptr<MPI_Comm> duplicate;
  MpiTransport::Line* made = nullptr;
};

class Transport final : public MpiTransport {
 public:
  bool allows_thread() const override {
    int initialized = 0, level = MPI_THREAD_MULTIPLE;
    MPI_Initialized(&initialized);
    if (initialized) MPI_Query_thread(&level);
    return level >= MPI_THREAD_SERIALIZED;
  }
  bool allows_any_thread() const override { return level_ >= MPI_THREAD_SERIALIZED; }
  void connect() override {
    int initialized = 0, level = 0;
    MPI_Initialized(&initialized);
    if (!initialized) {
      show_to_plugins();
      // This thread will make all calls, so the lowest level would do; asking for more lets the
      // program use MPI, too.
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
      owns_ = true;
    }
    MPI_Comm world = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &notes_), "MPI_Comm_dup");
    MPI_Comm machine = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
              "MPI_Comm_split_type");
    MPI_Comm_group(machine, &machine_);
    MPI_Comm_free(&machine);
    add(world);
    int* largest_tag = nullptr;
    int known = 0;
    MPI_Comm_get_attr(world, MPI_TAG_UB, &largest_tag, &known);
    has_tags_ = known && *largest_tag >= DirectSum::kFirstTag + DirectSum::kTags;
    MPI_Query_thread(&level_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(notes_, MPI_ERRORS_RETURN);
    expect_note();
  }
  int rank(Line line) const override {
    int out = 0;
    MPI_Comm_rank(comm_of(line), &out);
    return out;
  }
  int size(Line line) const override {
    int out = 0;
    MPI_Comm_size(comm_of(line), &out);
    return out;
  }

  Ticket start(Line line, const MpiOperation& operation) override {
    // Kept even if it fails halfway: MPI may still write to what has begun.
    Pending& pending = pending_[++last_ticket_];
    const Ticket ticket = last_ticket_;
    issue(lines_[static_cast<size_t>(line)], operation, pending);
    return ticket;
  }

  bool test(Ticket ticket) override {
    const auto it = pending_.find(ticket);
    if (it == pending_.end()) return true;
    Pending& p = it->second;
    if (p.sum && !p.sum->advance()) return false;
    if (!test_all(p.requests, p.expected, buffers_.statuses)) return false;
    if (p.whole != MPI_DATATYPE_NULL) MPI_Type_free(&p.whole);
    if (p.duplicate) *p.made = add(*p.duplicate);
    pending_.erase(it);
    return true;
  }

  Ticket start_duplicate(Line line, Line* made) override {
    Pending pending;
    pending.duplicate = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
    pending.made = made;
    check_mpi(MPI_Comm_idup(comm_of(line), pending.duplicate.get(), &next_request(pending)),
              "MPI_Comm_idup");
    return keep(std::move(pending));
  }

  Line split(Line line, const int* ranks, int count) override {
    const int own = rank(line);
    const int* at = std::find(ranks, ranks + count, own);
    MPI_Comm made = MPI_COMM_NULL;
    const bool member = at != ranks + count;
    check_mpi(MPI_Comm_split(comm_of(line), member ? 0 : MPI_UNDEFINED,
                             member ? static_cast<int>(at - ranks) : 0, &made),
              "MPI_Comm_split");
    return member ? add(made) : kNone;
  }

  Line create(const int* world_ranks, int count, int number) override {
    MPI_Group all, some;
    MPI_Comm made = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, count, world_ranks, &some), "MPI_Group_incl");
    const int code = MPI_Comm_create_group(MPI_COMM_WORLD, some, number % 32768, &made);
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    check_mpi(code, "MPI_Comm_create_group");
    return add(made);
  }

  void close(Line line) override {
    MPI_Comm_free(&lines_[static_cast<size_t>(line)].comm);
    free_lines_.push_back(line);
    --open_;
  }
  int open_lines() const override { return open_; }

  void send_note(const char* text) override {
    int own = 0, all = 0;
    MPI_Comm_rank(notes_, &own);
    MPI_Comm_size(notes_, &all);
    for (int r = 0; r < all; ++r) {
      if (r == own) continue;
      // Kept for good: a rank that is gone will never take it.
      sent_.emplace_back(kNoteSize, '\0');
      std::strncpy(sent_.back().data(), text, kNoteSize - 1);
      MPI_Request request;
      if (MPI_Isend(sent_.back().data(), kNoteSize, MPI_CHAR, r, 0, notes_, &request) ==
          MPI_SUCCESS)
        MPI_Request_free(&request);
    }
  }
  const char* next_note() override {
    int done = 0;
    if (MPI_Test(&note_request_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) return nullptr;
    read_ = note_;
    expect_note();
    return read_.data();
  }

  void disconnect() override {
    MPI_Cancel(&note_request_);
    MPI_Request_free(&note_request_);
    if (owns_) MPI_Finalize();
  }
  void set_largest_count(int64_t count) override { largest_ = count; }
  void set_apart() override { apart_ = true; }

 private:
  struct LineState {
    MPI_Comm comm = MPI_COMM_NULL;
    int ranks = 0;
    bool one_machine = false;  ///< has all ranks
    uint32_t sums = 0;  ///< direct sums so far: the same on all ranks, since they make the same
                        ///< calls in the same order
  };
  MPI_Comm comm_of(Line line) const { return lines_[static_cast<size_t>(line)].comm; }
  Line add(MPI_Comm comm) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    LineState state{comm};
    MPI_Comm_size(comm, &state.ranks);
    state.one_machine = !apart_ && is_on_this_machine(comm, state.ranks);
    ++open_;
    if (free_lines_.empty()) {
      lines_.push_back(state);
      return static_cast<Line>(lines_.size()) - 1;
    }
    const Line line = free_lines_.back();
    free_lines_.pop_back();
    lines_[static_cast<size_t>(line)] = state;
    return line;
  }
  bool is_on_this_machine(MPI_Comm comm, int ranks) const {
    std::vector<int> all(static_cast<size_t>(ranks)), here(all.size());
    std::iota(all.begin(), all.end(), 0);
    MPI_Group group;
    MPI_Comm_group(comm, &group);
    MPI_Group_translate_ranks(group, ranks, all.data(), machine_, here.data());
    MPI_Group_free(&group);
    return std::find(here.begin(), here.end(), MPI_UNDEFINED) == here.end();
  }
  Ticket keep(Pending pending) {
    pending_.emplace(++last_ticket_, std::move(pending));
    return last_ticket_;
  }
  static MPI_Request& next_request(Pending& pending) {
    return pending.requests.emplace_back(MPI_REQUEST_NULL);
  }
  void expect_note() {
    note_.assign(kNoteSize, '\0');
    MPI_Irecv(note_.data(), kNoteSize, MPI_CHAR, MPI_ANY_SOURCE, 0, notes_, &note_request_);
  }

  /// `count` elements as one value, so that counts beyond the range of int can be sent.
  MPI_Datatype whole(const Call& call, Pending& pending) const {
    const MPI_Datatype element = type_of(call.dtype);
    const auto size = static_cast<MPI_Aint>(element_size(call.dtype));
    const int64_t blocks = call.count / largest_, rest = call.count % largest_;
    MPI_Datatype block, blocks_type, rest_type;
    MPI_Type_contiguous(static_cast<int>(largest_), element, &block);
    MPI_Type_contiguous(static_cast<int>(blocks), block, &blocks_type);
    MPI_Type_contiguous(static_cast<int>(rest), element, &rest_type);
    const int lengths[] = {1, 1};
    const MPI_Aint places[] = {0, blocks * largest_ * size};
    const MPI_Datatype types[] = {blocks_type, rest_type};
    MPI_Type_create_struct(2, lengths, places, types, &pending.whole);
    check_mpi(MPI_Type_commit(&pending.whole), "MPI_Type_commit");
    MPI_Type_free(&block);
    MPI_Type_free(&blocks_type);
    MPI_Type_free(&rest_type);
    return pending.whole;
  }

  void issue(LineState& line, const MpiOperation& operation, Pending& pending) {
    const Call& call = operation.call;
    const MPI_Comm comm = line.comm;
    const bool large = call.count > largest_;
    const bool reduces = call.kind == CallKind::all_reduce || call.kind == CallKind::reduce_scatter;
    const MPI_Datatype type = large && !reduces ? whole(call, pending) : type_of(call.dtype);
    const int count = large && !reduces ? 1 : static_cast<int>(std::min(call.count, largest_));
    switch (call.kind) {
      case CallKind::barrier:
      case CallKind::split:
        check_mpi(MPI_Ibarrier(comm, &next_request(pending)), "MPI_Ibarrier");
        return;
      case CallKind::all_reduce: return all_reduce(line, operation, pending);
      case CallKind::reduce_scatter: return reduce_scatter(comm, operation, pending);
      case CallKind::broadcast:
        check_mpi(
            MPI_Ibcast(operation.output, count, type, call.peer, comm, &next_request(pending)),
            "MPI_Ibcast");
        return;
      case CallKind::all_gather:
        check_mpi(MPI_Iallgather(operation.input, count, type, operation.output, count, type, comm,
                                 &next_request(pending)),
                  "MPI_Iallgather");
        return;
      case CallKind::all_to_all:
        check_mpi(MPI_Ialltoall(operation.input, count, type, operation.output, count, type, comm,
                                &next_request(pending)),
                  "MPI_Ialltoall");
        return;
      case CallKind::send:
        check_mpi(MPI_Isend(operation.input, count, type, call.peer, call.tag, comm,
                            &next_request(pending)),
                  "MPI_Isend");
        return;
      case CallKind::recv:
        check_mpi(MPI_Irecv(operation.output, count, type, call.peer, call.tag, comm,
                            &next_request(pending)),
                  "MPI_Irecv");
        pending.expected.push_back({pending.requests.size() - 1, call.peer, type, call.count});
        return;
    }
  }

  void all_reduce(LineState& line, const MpiOperation& operation, Pending& pending) {
    const Call& call = operation.call;
    char* data = static_cast<char*>(operation.output);
    const auto size = static_cast<int64_t>(element_size(call.dtype));
    const MPI_Datatype type = type_of(call.dtype);
    const MPI_Op op = op_of(call.dtype, call.op);
    const bool few = line.ranks > 1 && line.ranks <= DirectSum::kMostRanks;
    if (few && has_tags_ && call.count > 0 && call.count <= largest_) {
      const bool commutes = call.op == ReduceOp::sum || call.op == ReduceOp::product;
      pending.sum =
          std::make_unique<DirectSum>(DirectSum::Task{line.comm, data, call.count, size,
                                                      static_cast<int64_t>(call.dtype) << 8 |
                                                          static_cast<int64_t>(call.op),
                                                      type, op, commutes, line.one_machine, line.sums++},
                                      buffers_);
      pending.sum->begin();
      return;
    }
    const int64_t most = std::min(largest_, kPieceBytes / size);
    for (int64_t at = 0; at < call.count || at == 0; at += most) {
      const int count = static_cast<int>(std::min(most, call.count - at));
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data + at * size, count, type, op, line.comm,
                               &next_request(pending)),
                "MPI_Iallreduce");
      if (call.count == 0) return;
    }
  }

  void reduce_scatter(MPI_Comm comm, const MpiOperation& operation, Pending& pending) const {
    const Call& call = operation.call;
    const MPI_Datatype type = type_of(call.dtype);
    const MPI_Op op = op_of(call.dtype, call.op);
    if (call.count <= largest_) {
      check_mpi(
          MPI_Ireduce_scatter_block(operation.input, operation.output, static_cast<int>(call.count),
                                    type, op, comm, &next_request(pending)),
          "MPI_Ireduce_scatter_block");
      return;
    }
    int ranks = 0;
    MPI_Comm_size(comm, &ranks);
    const auto size = static_cast<int64_t>(element_size(call.dtype));
    for (int r = 0; r < ranks; ++r)
      for (int64_t at = 0; at < call.count; at += largest_)
        check_mpi(
            MPI_Ireduce(static_cast<const char*>(operation.input) + (r * call.count + at) * size,
                        static_cast<char*>(operation.output) + at * size,
                        static_cast<int>(std::min(largest_, call.count - at)), type, op, r, comm,
                        &next_request(pending)),
            "MPI_Ireduce");
  }

  bool owns_ = false, has_tags_ = false, apart_ = false;
  int level_ = MPI_THREAD_SINGLE;
  int64_t largest_ = int64_t{1} << 30;
  std::vector<LineState> lines_;
  std::vector<Line> free_lines_;
  std::atomic<int> open_{0};
  DirectSum::Buffers buffers_;
  std::unordered_map<Ticket, Pending> pending_;
  Ticket last_ticket_ = 0;
  MPI_Group machine_ = MPI_GROUP_NULL;  ///< ranks on this one
  MPI_Comm notes_ = MPI_COMM_NULL;
  MPI_Request note_request_ = MPI_REQUEST_NULL;
  std::vector<char> note_, read_;
  std::deque<std::vector<char>> sent_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) MpiTransport* grapnel_mpi_transport(
    uint32_t version) {
  return version == kMpiTransportVersion ? new Transport : nullptr;
}

}  // namespace grapnel::dist
