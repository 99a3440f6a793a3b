#include "grapnel/dist/mpi_ledger.h"

#include <algorithm>

#include "grapnel/base/threads.h"

namespace grapnel::dist {

namespace {
/// How late the watchdog may notice: nobody wakes it for a new deadline.
constexpr std::chrono::milliseconds kLooksEvery{100};
}  // namespace

std::string Posted::describe() const {
  return str(op->call.str(), ", number ", op->sequence, " of group '", group, "'");
}

MpiLedger::MpiLedger(std::function<void(std::string)> tell) : tell_(std::move(tell)) {
  watchdog_ = base::start_thread([this] { mind_deadlines(); });
}

void MpiLedger::stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
}

FatePtr MpiLedger::fate(const std::string& id) {
  const Lock lock(mutex_);
  FatePtr& fate = fates_[id];
  if (!fate) {
    fate = std::make_shared<Fate>();
    fate->id = id;
    if (!lost_.empty()) {
      fate->failure = std::make_exception_ptr(CommAborted(lost_));
      fate->text = lost_;
    }
  }
  return fate;
}

bool MpiLedger::failed(const FatePtr& fate) const {
  const Lock lock(mutex_);
  return fate->failure != nullptr;
}

bool MpiLedger::enter(const PostedPtr& posted) {
  Lock lock(mutex_);
  if (!posted->fate->failure) {
    pending_.push_back(posted);
    may_block_ += posted->may_block;
    return true;
  }
  lock.unlock();
  posted->op->done.set_error(std::make_exception_ptr(CommAborted(
      str(posted->describe(), ", was refused, because the group was given up: ", posted->fate->text,
          "\nAll ranks can make another with ProcessGroup::renew()."))));
  return false;
}

void MpiLedger::complete(const PostedPtr& posted) {
  {
    const Lock lock(mutex_);
    const auto at = std::find(pending_.begin(), pending_.end(), posted);
    if (at == pending_.end()) return;
    may_block_ -= posted->may_block;
    pending_.erase(at);
  }
  posted->op->done.set_result(std::move(posted->op->result));
}

void MpiLedger::fail(const FatePtr& fate, const std::exception_ptr& why, const std::string& text,
                     Tell tell) {
  Lock lock(mutex_);
  fail(fate, why, text, tell, lock);
}

void MpiLedger::fail(const FatePtr& fate, const std::exception_ptr& why, const std::string& text,
                     Tell tell, Lock& lock) {
  if (fate->failure) return;
  fate->failure = why;
  fate->text = text;
  std::vector<PostedPtr> failed;
  std::erase_if(pending_, [&](const PostedPtr& posted) {
    if (posted->fate != fate) return false;
    may_block_ -= posted->may_block;
    failed.push_back(posted);
    return true;
  });
  lock.unlock();
  if (tell == Tell::others) tell_(str(timed_out() ? str(kLate) : "", fate->id, "\n", text));
  for (const PostedPtr& posted : failed) posted->op->done.set_error(why);
  lock.lock();
}

void MpiLedger::hear(const std::string& note) {
  const size_t begin = note.starts_with(kLate), end = note.find('\n');
  const std::string id = note.substr(begin, end - begin), text = note.substr(end + 1);
  heard_ = Clock::now();
  if (begin > 0) timed_out_ = true;
  if (id == kEverything) {
    // MPI_Finalize would wait for it.
    timed_out_ = true;
    std::vector<FatePtr> all;
    {
      const Lock lock(mutex_);
      if (lost_.empty()) lost_ = text;
      for (const auto& [name, fate] : fates_) all.push_back(fate);
    }
    for (const FatePtr& fate : all)
      fail(fate, std::make_exception_ptr(CommAborted(text)), text, Tell::nobody);
    return;
  }
  fail(fate(id), std::make_exception_ptr(CommAborted(text)), text, Tell::nobody);
}

void MpiLedger::mind_deadlines() {
  Lock lock(mutex_);
  while (!stopping_) {
    const auto first = std::min_element(
        pending_.begin(), pending_.end(),
        [](const PostedPtr& a, const PostedPtr& b) { return a->op->deadline < b->op->deadline; });
    const Clock::time_point look = Clock::now() + kLooksEvery;
    if (first == pending_.end() || Clock::now() < (*first)->op->deadline) {
      stop_.wait_until(lock,
                       first == pending_.end() ? look : std::min(look, (*first)->op->deadline));
      continue;
    }
    const PostedPtr late = *first;
    timed_out_ = true;
    const std::string text =
        str(late->describe(), ", was not complete after ", late->op->timeout.count(),
            " ms.\nA rank has ended, is stuck or does something else; if it is only slow, set a "
            "longer timeout.");
    fail(late->fate, std::make_exception_ptr(CommTimeout(text)), text, Tell::others, lock);
  }
}

}  // namespace grapnel::dist
