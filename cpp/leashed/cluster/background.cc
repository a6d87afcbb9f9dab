#include "leashed/cluster/background.h"

#include <algorithm>
#include <chrono>

#include "leashed/base/clock.h"
#include "leashed/base/team.h"

namespace leashed {
namespace {

constexpr double kHurry = 1;  // seconds for leaving, where the run was stopped
constexpr auto kPause = std::chrono::milliseconds(2);  // where there is nobody to synchronise with

}  // namespace

void Background::begin(const Synchronised& training, const std::function<bool()>& go_on) {
  stopped_ = &training.stopped;
  take_over(training, go_on);
  thread_ = start_thread([this, training] { shadow(training); });
}

// The last rounds are for leaving: the others change over to a ring without this trainer.
void Background::shadow(const Synchronised& training) {
  try {
    Round round = make_round(0);
    for (;;) {
      const bool ended = ended_.load(std::memory_order_acquire);
      if (ended && (uses_servers() || ring().has_left() || now() >= leave_until_)) return;
      if (!round.run(training.discipline, deadline(cancelled_))) {
        std::this_thread::sleep_for(kPause);
      }
    }
  } catch (...) {  // out of memory, or the synchroniser's own
    training.fail(std::current_exception());
  }
}

void Background::end() {
  if (!thread_.joinable()) return;
  ring().want_to_leave();
  leave_until_ =
      now() +
      (stopped_->load(std::memory_order_relaxed) ? std::min(kHurry, plan_.timeout) : plan_.timeout);
  if (uses_servers()) cancelled_.store(true, std::memory_order_relaxed);
  ended_.store(true, std::memory_order_release);  // pairs with the acquire in shadow
  thread_.join();
}

}  // namespace leashed
