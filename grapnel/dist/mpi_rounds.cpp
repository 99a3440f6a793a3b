#include "grapnel/dist/mpi_rounds.h"

#include <algorithm>

namespace grapnel::dist {

namespace {
/// Asking for notes takes as long as asking for a result, and there is no hurry.
constexpr uint64_t kRoundsPerNote = 16;
}  // namespace

bool MpiRounds::round(Work work) {
  for (const std::string& note : work.notes) transport_.send_note(note.c_str());
  for (PostedPtr& posted : work.posted) {
    // A group that is being renewed has no line yet on which to compare.
    if (check_calls_ && posted->line != MpiTransport::kNone &&
        !posted->op->call.is_point_to_point())
      compare_in_turn(std::move(posted));
    else begin(std::move(posted));
  }
  const bool any_complete = look_at_active();
  if (++rounds_ % kRoundsPerNote == 0 || (idle() && !any_complete))
    while (const char* note = transport_.next_note()) heard_.push_back({note, Clock::now(), 0});
  if (!heard_.empty()) act_on_notes();
  closing_.insert(closing_.end(), work.closing.begin(), work.closing.end());
  if (!closing_.empty()) close_idle_lines();
  return any_complete || !work.posted.empty();
}

void MpiRounds::begin(PostedPtr posted) {
  Active active{0, std::move(posted), nullptr};
  const Posted& p = *active.posted;
  try {
    active.ticket = p.start ? p.start() : transport_.start(p.line, p.operation);
  } catch (const std::exception& e) {
    return lose(std::move(active), e);
  }
  active_.push_back(std::move(active));
}

bool MpiRounds::look_at_active() {
  bool any_complete = false;
  for (size_t i = 0; i < active_.size();) {
    const auto take = [&] {
      Active taken = std::move(active_[i]);
      active_.erase(active_.begin() + static_cast<int64_t>(i));
      return taken;
    };
    try {
      if (!transport_.test(active_[i].ticket)) {
        ++i;
        continue;
      }
    } catch (const std::exception& e) {
      lose(take(), e);
      continue;
    }
    any_complete = true;
    finish(take());
  }
  return any_complete;
}

void MpiRounds::finish(const Active& active) {
  if (active.comparison) return compared(active);
  try {
    if (active.posted->finish) active.posted->finish();
    ledger_.complete(active.posted);
  } catch (const std::exception& e) {
    broken(active.posted, e);
  }
}

void MpiRounds::lose(Active active, const std::exception& e) {
  lost_.push_back(std::move(active));
  const Active& lost = lost_.back();
  // What waits to be compared after it is of the same group, and fails with it.
  if (lost.comparison) unchecked_[lost.posted->line].clear();
  broken(lost.posted, e);
}

void MpiRounds::broken(const PostedPtr& posted, const std::exception& e) {
  if (dynamic_cast<const MpiMismatch*>(&e)) {
    const bool message = posted->op->call.is_point_to_point();
    const std::string text =
        str(posted->describe(), ": ", e.what(), ".\n",
            message ? "Both ends of a message need the same type and number of elements."
                    : "All ranks must call the same collectives in the same order.");
    return ledger_.fail(posted->fate, std::make_exception_ptr(CommMismatch(text)), text,
                        MpiLedger::Tell::others);
  }
  const std::string text = str(posted->describe(), ", failed: ", e.what());
  ledger_.fail(posted->fate, std::make_exception_ptr(CommAborted(text)), text,
               MpiLedger::Tell::others);
}

// --- comparing calls ---

// A line's next call is compared only after the one before has begun: the ranks see the same order.
void MpiRounds::compare_in_turn(PostedPtr posted) {
  auto& queue = unchecked_[posted->line];
  queue.push_back(std::move(posted));
  if (queue.size() == 1) compare(queue.front());
}

void MpiRounds::compare(PostedPtr posted) {
  static_assert(std::is_trivially_copyable_v<Fingerprint>);
  const Line line = posted->line;
  Active active{0, std::move(posted), std::make_unique<Comparison>()};
  Comparison& c = *active.comparison;
  c.mine = {active.posted->op->call, active.posted->op->sequence};
  c.all.resize(static_cast<size_t>(transport_.size(line)));
  const Call exchange{
      .kind = CallKind::all_gather, .dtype = DType::UInt8, .count = sizeof(Fingerprint)};
  try {
    active.ticket = transport_.start(line, {exchange, &c.mine, c.all.data()});
  } catch (const std::exception& e) {
    return lose(std::move(active), e);
  }
  active_.push_back(std::move(active));
}

void MpiRounds::compared(const Active& active) {
  const std::vector<Fingerprint>& all = active.comparison->all;
  const Posted& posted = *active.posted;
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const Fingerprint& f) { return f.call != all[0].call; });
  if (other == all.end()) {
    begin(active.posted);
  } else {
    const std::string text =
        str("the ranks of group '", posted.group, "' called different collectives as number ",
            posted.op->sequence, ": rank 0 called ", all[0].call.str(), ", rank ",
            other - all.begin(), " called ", other->call.str(),
            ".\nAll ranks must call the same collectives in the same order.");
    ledger_.fail(posted.fate, std::make_exception_ptr(CommMismatch(text)), text,
                 MpiLedger::Tell::nobody);
  }
  auto& queue = unchecked_[posted.line];
  queue.pop_front();
  if (!queue.empty()) compare(queue.front());
}

// --- what other ranks say, and lines that nobody uses ---

// A rank that gives up has completed everything it did before; so may this one. What is under way
// gets a few rounds to arrive.
void MpiRounds::act_on_notes() {
  Heard& first = heard_.front();
  ++first.rounds;
  if (!idle() && (first.rounds < 50 || Clock::now() - first.since < std::chrono::milliseconds(20)))
    return;
  const std::string text = std::move(first.text);
  heard_.pop_front();
  ledger_.hear(text);
}

void MpiRounds::close_idle_lines() {
  std::erase_if(closing_, [&](const Closing& c) {
    if (ledger_.failed(c.fate)) return true;
    const auto queue = unchecked_.find(c.line);
    const bool queued = queue != unchecked_.end() && !queue->second.empty();
    if (queued || std::any_of(active_.begin(), active_.end(),
                              [&](const Active& a) { return a.posted->line == c.line; }))
      return false;
    transport_.close(c.line);
    return true;
  });
}

}  // namespace grapnel::dist
