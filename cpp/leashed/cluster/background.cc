#include "leashed/cluster/background.h"

#include <algorithm>
#include <chrono>

#include "leashed/base/clock.h"
#include "leashed/base/relaxed.h"
#include "leashed/base/team.h"

namespace leashed {
namespace {

constexpr double kLeaveHurried = 1;  // seconds for leaving, where the run was stopped
constexpr double kLong = 1e6;        // more than anybody waits
constexpr double kRest = 0.2;  // seconds between two rounds while nothing is trained here, where it
                               // is not known whether others wait for this one
constexpr auto kAlonePause =
    std::chrono::milliseconds(2);  // where there is nobody to synchronise with

}  // namespace

void Background::begin(const Synchronised& training, const std::function<bool()>& go_on) {
  stopped_ = &training.stopped;
  if (!training.come_and_go) workers_.store(training.workers, kRelaxed);
  take_over(training, round_.emplace(make_round(0)), go_on);
  if (uses_servers() && !plan_.within.empty()) round_->go_on(plan_.within[0].turn);
  thread_ = start_thread([this, training] {
    shadow(training, *round_);
    const std::lock_guard lock(mutex_);
    has_left_ = true;
    left_.notify_all();
  });
}

// What follows, such as an evaluation, is nothing that the others wait for.
void Background::leave(std::size_t) {
  if (workers_.load(kRelaxed) > 0 && workers_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    end_workers();
  }
}

// The last rounds are for leaving: the others change over to a ring without this trainer.
void Background::shadow(const Synchronised& training, Round& round) {
  try {
    for (bool done = false;;) {
      if (cancelled_.load(kRelaxed) || (ended_.load(kRelaxed) && ring().has_left())) return;
      if (!done || !round.owes() || holds_.load(kRelaxed)) rest(round.owes() && !round.alone());
      const bool moved = moved_.exchange(false, kRelaxed);
      done = round.run(training.discipline, deadline(cancelled_), moved);
      if (!done || round.alone()) std::this_thread::sleep_for(kAlonePause);
    }
  } catch (...) {  // out of memory, or the synchroniser's own
    training.fail(std::current_exception());
  }
}

void Background::rest(bool owes) {
  const double end = now() + kRest;
  const auto goes_on = [&] {
    if (ended_.load(kRelaxed) || cancelled_.load(kRelaxed)) return true;
    if (moved_.load(kRelaxed)) return true;  // on hold, too: a round before this has seen less
    if (uses_servers() && holds_.load(kRelaxed)) return false;
    const auto called = uses_servers() ? std::nullopt : ring().called();
    return called.value_or(now() >= end) || (!uses_servers() && workers_ended());
  };
  while (!goes_on()) {
    rests_.store(uses_servers() ? holds_.load(kRelaxed) : !owes, std::memory_order_release);
    std::this_thread::sleep_for(kAlonePause);
  }
  rests_.store(false, kRelaxed);
}

// What is under way when there is no more time is given up.
void Background::end() {
  if (thread_.joinable()) {
    ring().want_to_leave();
    ended_.store(true, kRelaxed);
    const double most = stopped_->load(kRelaxed) ? kLeaveHurried : kLong;
    const std::chrono::duration<double> time(uses_servers() ? 0 : std::min(most, plan_.timeout));
    {
      std::unique_lock lock(mutex_);
      left_.wait_for(lock, time, [this] { return has_left_; });
    }
    cancelled_.store(true, kRelaxed);
    thread_.join();
  }
  ring().close();
}

}  // namespace leashed
