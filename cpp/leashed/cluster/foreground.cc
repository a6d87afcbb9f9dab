#include "leashed/cluster/foreground.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include "leashed/base/clock.h"
#include "leashed/base/relaxed.h"
#include "leashed/discipline/discipline.h"

namespace leashed {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks at whether to stop
constexpr double kHurry = 1;  // seconds for the last rounds, where the run was stopped

}  // namespace

Foreground::Foreground(const SyncPlan& plan, std::size_t workers)
    : TrainerSync(plan, workers), count_(workers) {}

void Foreground::begin(const Synchronised& training, const std::function<bool()>& go_on) {
  if (training.workers != count_) {
    throw Error("there are " + std::to_string(training.workers) +
                " workers, and what synchronises them is made for " + std::to_string(count_));
  }
  const std::size_t rounds = uses_servers() ? count_ : 1;
  rounds_.reserve(rounds);
  for (std::size_t i = 0; i < rounds; ++i) rounds_.push_back(make_round(i));
  take_over(training, rounds_[0], go_on);
  training_.emplace(training);
  patient_ = [this] {
    if (!training_->stopped.load(kRelaxed)) return true;
    if (stopped_since_ == 0) stopped_since_ = now();
    return now() < stopped_since_ + kHurry;
  };
  lockstep_ = training.discipline.lockstep();
  progress_.assign(count_, {});
  for (std::size_t worker = 0; worker < count_; ++worker) {
    Progress& own = progress_[worker];
    own.last_time = now();
    if (plan_.within.empty()) continue;
    const WithinGap& was = plan_.within[worker % plan_.within.size()];
    own.iterations = was.iterations;
    own.last = was.iterations - std::min(was.since, was.iterations);
    own.last_time -= was.seconds;
    if (uses_servers()) rounds_[worker].go_on(was.turn);
  }
  const State there = training.come_and_go ? gone : trains;
  states_.assign(count_, there);
  counts_[there] = count_;
}

void Foreground::set(std::size_t worker, State state) {
  --counts_[states_[worker]];
  ++counts_[states_[worker] = state];
}

void Foreground::notice(Progress& own) {
  const std::uint64_t over = over_.load(kRelaxed);
  if (over == own.rounds) return;
  own.rounds = over;
  own.last = own.iterations;
  own.last_time = now();
}

// Whoever is to change over to another ring does so at once, with all others: so their gaps begin
// together.
bool Foreground::due(const Progress& own) {
  if (!uses_servers() && ring().pending()) return true;
  const double gap = plan_.pace.gap(own.iterations);
  if (plan_.pace.kind == Pace::Kind::seconds) return now() - own.last_time >= gap;
  return static_cast<double>(own.iterations - own.last) >= gap;
}

// An exchange with servers is given up at once where the run is stopped; the other trainers would
// lose their round by that.
Deadline Foreground::until() {
  if (!uses_servers()) {
    Deadline until = Deadline::in(plan_.timeout);
    until.go_on = &patient_;
    return until;
  }
  Deadline until = deadline(training_->stopped);
  until.ended = &cancelled_;
  return until;
}

void Foreground::stepped(std::size_t worker) {
  Progress& own = progress_[worker];
  notice(own);  // at the iteration before, which this worker stopped after
  ++own.iterations;
  const bool leads = due(own);
  if (uses_servers()) {
    if (leads) exchange(worker);
    return;
  }
  if (lockstep_ && worker != 0) return;
  if (!moved_.load(kRelaxed)) moved_.store(true, kRelaxed);
  if (!leads && !in_round_.load(kRelaxed)) return;
  std::unique_lock lock(mutex_);
  if (ended_) return;
  set(worker, stopped);
  std::exception_ptr error;
  if (in_round_.load(kRelaxed)) {
    changed_.notify_all();
    changed_.wait(lock, [this] { return !in_round_.load(kRelaxed); });
  } else if (leads) {
    error = lead(lock);
  }
  set(worker, trains);
  if (error) std::rethrow_exception(error);
}

void Foreground::exchange(std::size_t worker) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ++exchanging_;
  }
  std::exception_ptr error;
  try {
    rounds_[worker].run(training_->discipline, until());
  } catch (...) {
    error = std::current_exception();
  }
  Progress& own = progress_[worker];
  own.last = own.iterations;
  own.last_time = now();
  {
    const std::lock_guard lock(mutex_);
    if (--exchanging_ == 0) changed_.notify_all();
  }
  if (error) std::rethrow_exception(error);
}

// Who does not come within half of the time that a round may last is not waited for: a loop of
// somebody else's may do other things between two of its iterations.
std::exception_ptr Foreground::lead(std::unique_lock<std::mutex>& lock) {
  in_round_.store(true, kRelaxed);
  const double patience = now() + plan_.timeout / 2;
  // In lockstep nobody looks at theta until this worker has arrived at their barrier.
  const auto alone = [this] { return lockstep_ || count(trains) == 0 || ended_; };
  while (!alone() && !training_->stopped.load(kRelaxed) && now() < patience) {
    changed_.wait_for(lock, kLook, alone);
  }
  std::exception_ptr error;
  if (!ended_ && !training_->stopped.load(kRelaxed)) {
    for (std::size_t worker = 0; worker < count_ && !lockstep_; ++worker) {
      if (states_[worker] == trains) set(worker, waits);
    }
    lock.unlock();
    try {
      rounds_[0].run(training_->discipline, until(), moved_.exchange(false, kRelaxed));
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
  }
  over_.fetch_add(1, kRelaxed);
  in_round_.store(false, kRelaxed);
  changed_.notify_all();
  return error;
}

// Where all workers wait, the other trainers' rounds go on with this one all the same, which begins
// none. In lockstep all do where one does.
void Foreground::waiting(std::size_t worker) {
  if (uses_servers()) return;
  std::unique_lock lock(mutex_);
  if (states_[worker] != waits) {
    set(worker, waits);
    changed_.notify_all();
  }
  const bool all = count(waits) + count(gone) == count_;
  if (ended_ || in_round_.load(kRelaxed) || (!all && !lockstep_)) return;
  if (!ring().called().value_or(true)) return;
  if (const std::exception_ptr error = lead(lock)) std::rethrow_exception(error);
}

void Foreground::resumed(std::size_t worker) {
  if (uses_servers()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !in_round_.load(kRelaxed); });
  if (states_[worker] == waits) set(worker, trains);
}

void Foreground::join(std::size_t worker) {
  const std::lock_guard lock(mutex_);
  set(worker, trains);
}

// After the last worker no round is led here any more, which the others would wait for.
void Foreground::leave(std::size_t worker) {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    set(worker, gone);
    last = !training_->come_and_go && count(gone) == count_;
  }
  changed_.notify_all();
  if (!last) return;
  end_workers();
  if (!uses_servers()) depart();
}

void Foreground::depart() {
  try {
    while (!ring().has_left()) {
      if (!rounds_[0].run(training_->discipline, until(), moved_.exchange(false, kRelaxed))) break;
    }
  } catch (...) {
    training_->fail(std::current_exception());
  }
}

std::vector<WithinGap> Foreground::within() const {
  std::vector<WithinGap> found;
  const bool over = !uses_servers();
  for (std::size_t worker = 0; worker < progress_.size(); ++worker) {
    const Progress& own = progress_[worker];
    // (Of a round that another has led it hears before its next step.)
    const bool since = !over || own.rounds == over_.load(kRelaxed);
    found.push_back({own.iterations, since ? own.iterations - own.last : 0,
                     since ? now() - own.last_time : 0, over ? 0 : rounds_[worker].turn()});
  }
  return found;
}

bool Foreground::at_rest() {
  const std::lock_guard lock(mutex_);
  return !in_round_.load(kRelaxed) && exchanging_ == 0;
}

void Foreground::end() {
  ring().want_to_leave();
  if (training_) {
    std::unique_lock lock(mutex_);
    ended_ = true;
    if (uses_servers()) cancelled_.store(true, kRelaxed);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !in_round_.load(kRelaxed) && exchanging_ == 0; });
  }
  if (training_ && !uses_servers()) depart();
  ring().close();
}

}  // namespace leashed
