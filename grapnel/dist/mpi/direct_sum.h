/// An all-reduce over few ranks that is made of messages.
///
/// Note [Sums in the order of ranks]
/// The elements are cut into pieces, and each piece into one part per rank. Every rank collects its
/// own part from all others, adds it up in the order of ranks, and sends it back to everybody: two
/// messages deep, whereas a ring is as deep as there are ranks. A part is added up by one rank
/// only, so all ranks get the same bits, and those are the bits that threads as ranks get.
///
/// Pieces are small enough to be added up while they are in the cache. Between machines a few are
/// under way at a time: the network moves one while another is added up. Within a machine the
/// processors copy, so pieces that are under way together only push each other out of the cache;
/// there the next begins when one is done, and pieces are as large as caches allow.
///
/// Note [Sums that do not fit]
/// Ranks that were given different numbers of elements must not get a result. What goes in one
/// piece is as long as the receiver expects it, or it is noticed. Before longer ones every rank
/// says what it is about to sum; that message is longer than any that goes in one piece, so ranks
/// that send in different ways notice as well.
#pragma once

#include <mpi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "grapnel/dist/mpi/check.h"

namespace grapnel::dist {

class DirectSum {
 public:
  /// With more ranks there are too many messages: their number grows with the square.
  static constexpr int kMostRanks = 8;
  /// Tags of messages. Those of users are below.
  static constexpr int kFirstTag = 32768, kTags = 8192;

  struct Task {
    MPI_Comm comm;
    char* data;  ///< is replaced by the sum
    int64_t count, element_bytes;
    int64_t what;  ///< type and operation, alike on all ranks
    MPI_Datatype type;
    MPI_Op op;
    /// Whether a op b has the bits of b op a: not so for the smaller of 0 and -0.
    bool commutes_exactly;
    bool one_machine;  ///< has all ranks of `comm`
    uint32_t number;   ///< the same on all ranks; calls that are under way at the same time have
                       ///< different ones
  };

  /// Memory for parts of others that are added up, kept from sum to sum: fresh memory costs more
  /// than the sum of a short tensor.
  class Buffers {
   public:
    struct Free {
      void operator()(char* p) const { std::free(p); }
    };
    struct Buffer {
      std::unique_ptr<char, Free> data;
      size_t bytes = 0;
    };
    Buffer take(size_t bytes) {
      auto best = free_.end();
      for (auto it = free_.begin(); it != free_.end(); ++it)
        if (it->bytes >= bytes && (best == free_.end() || it->bytes < best->bytes)) best = it;
      if (best == free_.end()) return allocate(std::max(bytes, kSmallest));
      Buffer buffer = std::move(*best);
      free_.erase(best);
      return buffer;
    }
    void give(Buffer buffer) {
      if (free_.size() < kKept) free_.push_back(std::move(buffer));
    }
    std::vector<MPI_Status> statuses;  ///< for whoever asks right now

   private:
    static constexpr size_t kKept = 8, kSmallest = 64 << 10, kHugePage = 2 << 20;
    static Buffer allocate(size_t bytes) {
      const bool huge = bytes > kHugePage / 4;
      const size_t unit = huge ? kHugePage : 4096;
      bytes = (bytes + unit - 1) / unit * unit;
      Buffer buffer{{static_cast<char*>(std::aligned_alloc(unit, bytes)), {}}, bytes};
      if (!buffer.data) throw std::bad_alloc();
      // Copies from another process are half as long in huge pages; only a hint, though.
      if (huge) ::madvise(buffer.data.get(), bytes, MADV_HUGEPAGE);
      return buffer;
    }
    std::vector<Buffer> free_;
  };

  DirectSum(const Task& task, Buffers& buffers)
      : t_(task),
        buffers_(buffers),
        tag_(kFirstTag + 4 * static_cast<int>(t_.number % (kTags / 4))),
        window_(t_.one_machine ? 1 : 4) {
    MPI_Comm_rank(t_.comm, &rank_);
    MPI_Comm_size(t_.comm, &ranks_);
    // What is short goes to everybody at once, and everybody adds it up.
    whole_ = t_.count * t_.element_bytes <= kShortBytes;
    const int64_t bytes = t_.one_machine ? 2 << 20 : 512 << 10;
    piece_ = whole_ ? t_.count : std::max<int64_t>(1, bytes / t_.element_bytes / ranks_) * ranks_;
  }

  DirectSum(const DirectSum&) = delete;
  DirectSum& operator=(const DirectSum&) = delete;

  /// Once, before advance(). If it throws, messages may be under way: keep the object.
  void begin() {
    if (!whole_) exchange_plans();
    begin_pieces();
  }
  /// Goes on as far as it can without waiting; true when everything is summed.
  bool advance() {
    if (!plans_.empty() && !plans_agree()) return false;
    for (bool moved = true; moved;) {
      moved = false;
      for (Piece& piece : window_) {
        // Sums go back in the order of pieces, since messages with one tag are told apart by their
        // order.
        if (piece.stage == Stage::collect && piece.first == next_back_ && arrived(piece)) {
          add_up(piece);
          next_back_ += piece_;
          if (whole_) piece.stage = Stage::idle;
          else send_back(piece);
          buffers_.give(std::move(piece.others));
          moved = true;
        } else if (piece.stage == Stage::spread && arrived(piece)) {
          piece.stage = Stage::idle;
          moved = true;
        }
      }
      begin_pieces();
    }
    return next_ >= t_.count && std::all_of(window_.begin(), window_.end(),
                                            [](const Piece& p) { return p.stage == Stage::idle; });
  }

 private:
  static constexpr int64_t kShortBytes = 2048;
  enum Tag { kFirst, kPart, kBack };
  /// What a rank is about to sum. See Note [Sums that do not fit].
  struct Plan {
    int64_t count, what;
    char rest[kShortBytes];
  };
  enum class Stage { idle, collect, spread };
  struct Piece {
    Stage stage = Stage::idle;
    int64_t first = 0, count = 0;
    std::vector<MPI_Request> requests;
    std::vector<Expected> expected;
    Buffers::Buffer others;  ///< this rank's part as they have it
  };

  // The part of rank r, in elements of the piece.
  int64_t begin_of(const Piece& piece, int r) const {
    return whole_ ? 0 : piece.count * r / ranks_;
  }
  int64_t count_of(const Piece& piece, int r) const {
    return whole_ ? piece.count : begin_of(piece, r + 1) - begin_of(piece, r);
  }
  char* part(const Piece& piece, int r) const {
    return t_.data + (piece.first + begin_of(piece, r)) * t_.element_bytes;
  }
  /// The part of this rank as rank r has it.
  char* from(const Piece& piece, int r) const {
    return r == rank_ ? part(piece, r)
                      : piece.others.data.get() +
                            (r - (r > rank_)) * count_of(piece, rank_) * t_.element_bytes;
  }

  void exchange_plans() {
    plans_.resize(static_cast<size_t>(ranks_));
    Plan& own = plans_[static_cast<size_t>(rank_)];
    own.count = t_.count;
    own.what = t_.what;
    const auto at = [&](int r) { return plans_.data() + r; };
    const auto as_bytes = [&](auto&& call, Plan* plan, int r) {
      check_mpi(call(plan, static_cast<int>(sizeof(Plan)), MPI_BYTE, r, tag_ + kFirst, t_.comm,
                     &plan_requests_.emplace_back(MPI_REQUEST_NULL)),
                "exchange of plans");
    };
    for_others([&](int r) {
      as_bytes(MPI_Irecv, at(r), r);
      plans_expected_.push_back({plan_requests_.size() - 1, r, MPI_BYTE, sizeof(Plan)});
    });
    for_others([&](int r) { as_bytes(MPI_Isend, at(rank_), r); });
  }
  bool plans_agree() {
    if (!test_all(plan_requests_, plans_expected_, buffers_.statuses)) return false;
    for_others([&](int r) {
      const Plan& p = plans_[static_cast<size_t>(r)];
      if (p.count != t_.count)
        throw MpiMismatch("rank " + std::to_string(r) + " sums " + std::to_string(p.count) +
                          " elements");
      if (p.what != t_.what)
        throw MpiMismatch("rank " + std::to_string(r) + " has another type or operation");
    });
    plans_.clear();
    return true;
  }

  void begin_pieces() {
    for (Piece& piece : window_) {
      if (next_ >= t_.count) return;
      if (piece.stage != Stage::idle) continue;
      piece.stage = Stage::collect;
      piece.first = next_;
      piece.count = std::min(piece_, t_.count - next_);
      next_ += piece_;
      const int64_t own = count_of(piece, rank_);
      piece.others =
          buffers_.take(static_cast<size_t>(own * t_.element_bytes) * static_cast<size_t>(ranks_));
      const int tag = tag_ + (whole_ ? kFirst : kPart);
      for_others([&](int r) { receive(piece, from(piece, r), own, r, tag); });
      for_others([&](int r) { send(piece, part(piece, r), count_of(piece, r), r, tag); });
    }
  }
  void send_back(Piece& piece) {
    piece.stage = Stage::spread;
    for_others([&](int r) { receive(piece, part(piece, r), count_of(piece, r), r, tag_ + kBack); });
    for_others(
        [&](int r) { send(piece, part(piece, rank_), count_of(piece, rank_), r, tag_ + kBack); });
  }
  void add_up(Piece& piece) const {
    const auto count = static_cast<int>(count_of(piece, rank_));
    // Everybody's own sum of the whole must have the same bits even where they are no numbers.
    const bool may_swap = t_.commutes_exactly && !whole_;
    char* sum = from(piece, 0);
    for (int r = 1; r < ranks_; ++r) {
      char* next = from(piece, r);
      // From here on the sum is where it belongs.
      if (r == rank_ && may_swap) std::swap(sum, next);
      check_mpi(MPI_Reduce_local(next, sum, count, t_.type, t_.op), "MPI_Reduce_local");
    }
    if (sum != part(piece, rank_))
      std::memcpy(part(piece, rank_), sum, static_cast<size_t>(count * t_.element_bytes));
  }

  template <class Fn>
  void for_others(Fn&& fn) const {
    // Everybody begins with the next rank, so that not all write to the same one.
    for (int i = 1; i < ranks_; ++i) fn((rank_ + i) % ranks_);
  }
  void receive(Piece& piece, char* data, int64_t count, int r, int tag) const {
    check_mpi(MPI_Irecv(data, static_cast<int>(count), t_.type, r, tag, t_.comm,
                        &piece.requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
    piece.expected.push_back({piece.requests.size() - 1, r, t_.type, count});
  }
  void send(Piece& piece, const char* data, int64_t count, int r, int tag) const {
    check_mpi(MPI_Isend(data, static_cast<int>(count), t_.type, r, tag, t_.comm,
                        &piece.requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
  }
  bool arrived(Piece& piece) const {
    if (!test_all(piece.requests, piece.expected, buffers_.statuses)) return false;
    piece.requests.clear();
    piece.expected.clear();
    return true;
  }

  const Task t_;
  Buffers& buffers_;
  const int tag_;
  int rank_ = 0, ranks_ = 0;
  bool whole_ = false;
  int64_t piece_ = 0, next_ = 0, next_back_ = 0;
  std::vector<Piece> window_;
  std::vector<Plan> plans_;  ///< of all ranks; empty when they agree, or when there are none
  std::vector<MPI_Request> plan_requests_;
  std::vector<Expected> plans_expected_;
};

}  // namespace grapnel::dist
