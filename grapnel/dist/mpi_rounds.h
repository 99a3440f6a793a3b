/// Calls of MPI, round by round: begins what was posted, asks whether what is under way is
/// complete, and hears what other ranks have to say. Whoever has the turn makes them, see
/// Note [Who calls MPI].
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grapnel/dist/mpi_ledger.h"

namespace grapnel::dist {

class MpiRounds {
 public:
  using Line = MpiTransport::Line;
  using Ticket = MpiTransport::Ticket;

  /// With `check_calls` the ranks compare each collective before it begins.
  MpiRounds(MpiTransport& transport, MpiLedger& ledger, bool check_calls)
      : transport_(transport), ledger_(ledger), check_calls_(check_calls) {}

  /// A line that nobody will use any more. It ends as soon as nothing is under way on it. After a
  /// failure something may be for good; then it stays.
  struct Closing {
    Line line;
    FatePtr fate;
  };
  /// What has come up since the last round.
  struct Work {
    std::vector<PostedPtr> posted;
    std::vector<std::string> notes;
    std::vector<Closing> closing;
    bool empty() const { return posted.empty() && notes.empty() && closing.empty(); }
  };
  /// True if anything happened.
  bool round(Work work);
  /// Nothing is under way.
  bool idle() const { return active_.empty(); }

 private:
  /// A call as it travels, to be compared.
  struct Fingerprint {
    Call call;
    uint64_t sequence = 0;
  };
  struct Comparison {
    Fingerprint mine;
    std::vector<Fingerprint> all;
  };
  struct Active {
    Ticket ticket;
    PostedPtr posted;
    std::unique_ptr<Comparison> comparison;  ///< of the call, before it begins; else null
  };
  struct Heard {
    std::string text;
    Clock::time_point since;
    int rounds;
  };

  bool look_at_active();
  void begin(PostedPtr posted);
  void finish(const Active& active);
  void lose(Active active, const std::exception& e);
  void broken(const PostedPtr& posted, const std::exception& e);
  void compare_in_turn(PostedPtr posted);
  void compare(PostedPtr posted);
  void compared(const Active& active);
  void act_on_notes();
  void close_idle_lines();

  MpiTransport& transport_;
  MpiLedger& ledger_;
  const bool check_calls_;
  std::vector<Active> active_;
  /// What MPI failed at. Parts of it may still be under way and write to its memory, so that is
  /// kept for good.
  std::vector<Active> lost_;
  std::map<Line, std::deque<PostedPtr>> unchecked_;
  uint64_t rounds_ = 0;
  std::deque<Heard> heard_;
  std::vector<Closing> closing_;
};

}  // namespace grapnel::dist
