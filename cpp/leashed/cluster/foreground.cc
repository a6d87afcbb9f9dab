#include "leashed/cluster/foreground.h"

#include <chrono>
#include <exception>
#include <string>

#include "leashed/base/clock.h"

namespace leashed {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks at whether to stop

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
  lockstep_ = training.discipline.lockstep();
  progress_.assign(count_, {});
  for (Progress& own : progress_) own.last_time = now();
  active_ = count_;
  waits_.assign(count_, false);
}

void Foreground::notice(Progress& own) {
  const std::uint64_t over = over_.load(kRelaxed);
  if (over == own.rounds) return;
  own.rounds = over;
  own.last = own.iterations;
  own.last_time = now();
}

bool Foreground::due(const Progress& own) const {
  const double gap = plan_.pace.gap(own.iterations);
  if (plan_.pace.kind == Pace::Kind::seconds) return now() - own.last_time >= gap;
  return static_cast<double>(own.iterations - own.last) >= gap;
}

void Foreground::stepped(std::size_t worker) {
  Progress& own = progress_[worker];
  notice(own);  // at the iteration before, which this worker stopped after
  ++own.iterations;
  if (uses_servers()) {
    if (!due(own)) return;
    rounds_[worker].run(training_->discipline, deadline(training_->stopped));
    own.last = own.iterations;
    own.last_time = now();
    return;
  }
  if (lockstep_ && worker != 0) return;
  const bool leads = due(own);
  if (!leads && !in_round_.load(kRelaxed)) return;
  std::unique_lock lock(mutex_);
  if (!in_round_.load(kRelaxed)) {
    if (leads) lead(lock);
    return;
  }
  ++stopped_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !in_round_.load(kRelaxed); });
  --stopped_;
}

void Foreground::lead(std::unique_lock<std::mutex>& lock) {
  in_round_.store(true, kRelaxed);
  // In lockstep nobody looks at theta until this worker has arrived at their barrier.
  const auto alone = [this] { return lockstep_ || stopped_ + waiting_ + 1 >= active_; };
  while (!alone() && !training_->stopped.load(kRelaxed)) changed_.wait_for(lock, kLook, alone);
  std::exception_ptr error;
  if (!training_->stopped.load(kRelaxed)) {
    lock.unlock();
    try {
      rounds_[0].run(training_->discipline, deadline(training_->stopped));
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
  }
  over_.fetch_add(1, kRelaxed);
  in_round_.store(false, kRelaxed);
  changed_.notify_all();
  if (error) std::rethrow_exception(error);
}

// Where all workers wait, the other trainers' rounds go on with this one all the same. In lockstep
// all do where one does.
void Foreground::waiting(std::size_t worker) {
  if (uses_servers()) return;
  std::unique_lock lock(mutex_);
  if (!waits_[worker]) {
    waits_[worker] = true;
    ++waiting_;
    changed_.notify_all();
  }
  if (in_round_.load(kRelaxed) || (waiting_ < active_ && !lockstep_)) return;
  Progress& own = progress_[worker];
  notice(own);
  if (plan_.pace.kind == Pace::Kind::iterations || due(own)) lead(lock);
}

void Foreground::resumed(std::size_t worker) {
  if (uses_servers()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !in_round_.load(kRelaxed); });
  if (!waits_[worker]) return;
  waits_[worker] = false;
  --waiting_;
}

void Foreground::leave(std::size_t worker) {
  {
    const std::lock_guard lock(mutex_);
    if (waits_[worker]) {
      waits_[worker] = false;
      --waiting_;
    }
    --active_;
  }
  changed_.notify_all();
}

// The last round is for leaving: the others change over to a ring without this trainer.
void Foreground::end() {
  ring().want_to_leave();
  if (training_ && !uses_servers()) {
    const Deadline until = deadline(training_->stopped);
    try {
      while (!ring().has_left()) {
        if (!rounds_[0].run(training_->discipline, until)) break;
      }
    } catch (...) {
      training_->fail(std::current_exception());
    }
  }
  ring().close();
}

}  // namespace leashed
