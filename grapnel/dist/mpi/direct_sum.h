/// An all-reduce over few ranks that is made of messages.
///
/// Note [Sums in the order of ranks]
/// The elements are cut into pieces, and each piece into one part per rank. Every rank collects its
/// own part from all others, adds it up in the order of ranks, and sends it back to everybody: two
/// messages deep, whereas a ring is as deep as there are ranks. A part is added up by one rank
/// only, so all ranks get the same bits, and those are the bits that threads as ranks get. Pieces
/// are small enough to be added up while they are in the cache; a few are under way at a time.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "grapnel/dist/mpi/check.h"

namespace grapnel::dist {

class DirectSum {
 public:
  /// With more ranks there are too many messages: their number grows with the square.
  static constexpr int kMostRanks = 8;
  /// Tags of messages. Those of users are below.
  static constexpr int kFirstTag = 32768, kTags = 8192;
  static constexpr int64_t kPieceBytes = 512 << 10;

  struct Task {
    MPI_Comm comm;
    char* data;  ///< is replaced by the sum
    int64_t count, element_bytes;
    MPI_Datatype type;
    MPI_Op op;
    uint32_t number;  ///< the same on all ranks; calls that are under way at the same time have
                      ///< different ones
  };

  /// Memory for parts of others that are added up, kept from sum to sum: fresh memory costs more
  /// than the sum of a short tensor.
  class Buffers {
   public:
    using Buffer = std::unique_ptr<char[]>;
    Buffer take() {
      if (free_.empty()) return Buffer(new char[kPieceBytes]);
      Buffer buffer = std::move(free_.back());
      free_.pop_back();
      return buffer;
    }
    void give(Buffer buffer) {
      if (free_.size() < kKept) free_.push_back(std::move(buffer));
    }

   private:
    static constexpr size_t kKept = 16;
    std::vector<Buffer> free_;
  };

  DirectSum(const Task& task, Buffers& buffers)
      : t_(task),
        buffers_(buffers),
        tag_(kFirstTag + 2 * static_cast<int>(t_.number % (kTags / 2))) {
    MPI_Comm_rank(t_.comm, &rank_);
    MPI_Comm_size(t_.comm, &ranks_);
    // What is short goes to everybody at once, and everybody adds it up.
    whole_ = t_.count * t_.element_bytes <= kShortBytes;
    piece_ =
        whole_ ? t_.count : std::max<int64_t>(1, kPieceBytes / t_.element_bytes / ranks_) * ranks_;
  }

  DirectSum(const DirectSum&) = delete;
  DirectSum& operator=(const DirectSum&) = delete;

  /// Once, before advance(). If it throws, messages may be under way: keep the object.
  void begin() { begin_pieces(); }
  /// Goes on as far as it can without waiting; true when everything is summed.
  bool advance() {
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
  enum class Stage { idle, collect, spread };
  struct Piece {
    Stage stage = Stage::idle;
    int64_t first = 0, count = 0;
    std::vector<MPI_Request> requests;
    /// This rank's part as the others have it; they have kPieceBytes together at most.
    Buffers::Buffer others;
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
    return r == rank_
               ? part(piece, r)
               : piece.others.get() + (r - (r > rank_)) * count_of(piece, rank_) * t_.element_bytes;
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
      piece.others = buffers_.take();
      for_others([&](int r) { receive(piece, from(piece, r), own, r, tag_); });
      for_others([&](int r) { send(piece, part(piece, r), count_of(piece, r), r, tag_); });
    }
  }
  void send_back(Piece& piece) {
    piece.stage = Stage::spread;
    piece.requests.clear();
    for_others([&](int r) { receive(piece, part(piece, r), count_of(piece, r), r, tag_ + 1); });
    for_others(
        [&](int r) { send(piece, part(piece, rank_), count_of(piece, rank_), r, tag_ + 1); });
  }
  void add_up(Piece& piece) const {
    const auto count = static_cast<int>(count_of(piece, rank_));
    char* const sum = from(piece, 0);
    for (int r = 1; r < ranks_; ++r)
      check_mpi(MPI_Reduce_local(from(piece, r), sum, count, t_.type, t_.op), "MPI_Reduce_local");
    if (rank_ != 0)
      std::memcpy(part(piece, rank_), sum, static_cast<size_t>(count * t_.element_bytes));
    piece.requests.clear();
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
  }
  void send(Piece& piece, const char* data, int64_t count, int r, int tag) const {
    check_mpi(MPI_Isend(data, static_cast<int>(count), t_.type, r, tag, t_.comm,
                        &piece.requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
  }
  static bool arrived(Piece& piece) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(piece.requests.size()), piece.requests.data(), &done,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return done != 0;
  }

  const Task t_;
  Buffers& buffers_;
  const int tag_;
  int rank_ = 0, ranks_ = 0;
  bool whole_ = false;
  int64_t piece_ = 0, next_ = 0, next_back_ = 0;
  std::array<Piece, 4> window_;
};

}  // namespace grapnel::dist
