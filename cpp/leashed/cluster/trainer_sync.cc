#include "leashed/cluster/trainer_sync.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/cluster/background.h"
#include "leashed/cluster/foreground.h"

namespace leashed {
namespace {

constexpr auto kPause = std::chrono::milliseconds(2);

// No part is without a fragment.
SyncPlan in_parts(SyncPlan plan) {
  plan.parts = std::clamp<std::size_t>(plan.parts, 1, fragments_of(plan.dimension));
  return plan;
}

}  // namespace

TrainerSync::TrainerSync(const SyncPlan& plan, std::size_t exchanging)
    : plan_(in_parts(plan)), ring_(plan.dimension, plan_.parts, plan.codec) {
  if (!leashed::uses_servers(plan.machine)) return;
  standings_ = std::make_shared<Standings>(plan.servers, plan.owner.size());
  for (std::size_t slot = 0; slot < exchanging; ++slot) {
    links_.push_back(std::make_unique<ServerLinks>(plan.dimension, plan.owner, plan.servers,
                                                   plan_.parts, plan.codec, standings_));
  }
}

WireSum TrainerSync::traffic() const {
  WireSum sum;
  sum.add(ring_.traffic());
  for (const auto& links : links_) sum.add(links->traffic());
  return sum;
}

Transfers TrainerSync::transfers() const {
  Transfers sum = ring_.transfers();
  for (const auto& links : links_) {
    const Transfers more = links->transfers();
    sum.out += more.out;
    sum.in += more.in;
  }
  return sum;
}

std::uint64_t TrainerSync::not_finite() const {
  std::uint64_t sum = counters_.not_finite.load(std::memory_order_relaxed);
  for (const auto& links : links_) sum += links->not_finite();
  return sum;
}

std::uint32_t TrainerSync::lag() const {
  std::uint32_t most = 0;
  if (!standings_) return most;
  for (const Standing& standing : standings_->fragments) {
    most = std::max(most, standing.missed.load(std::memory_order_relaxed));
  }
  return most;
}

void TrainerSync::end_workers() {
  ring_.want_to_leave();
  workers_ended_.store(true, std::memory_order_release);
}

Round TrainerSync::make_round(std::size_t slot) {
  Round round(plan_.machine, uses_servers() ? links_[slot].get() : nullptr,
              uses_servers() ? nullptr : &ring_, plan_.custom, plan_.dimension, counters_);
  if (!plan_.states.empty()) round.restore(plan_.states);
  return round;
}

Deadline TrainerSync::deadline(const std::atomic<bool>& cancelled) const {
  Deadline deadline = Deadline::in(plan_.timeout);
  deadline.cancelled = &cancelled;
  return deadline;
}

void TrainerSync::take_over(const Synchronised& training, Round& round,
                            const std::function<bool()>& go_on) {
  if (std::exchange(begun_, true)) throw Error("a synchronisation is of one training alone");
  if (training.dimension != plan_.dimension) {
    throw Error("the model has " + std::to_string(training.dimension) +
                " parameters, and what synchronises it is made for " +
                std::to_string(plan_.dimension));
  }
  const auto from_now = [&] {
    Deadline until = deadline(training.stopped);
    until.go_on = &go_on;
    return until;
  };
  const Deadline until = from_now();
  if (!uses_servers()) {
    while (!round.join(training.discipline, until) && now() < until.at && go_on() &&
           !training.stopped.load(std::memory_order_relaxed)) {
      std::this_thread::sleep_for(kPause);
    }
    return;
  }
  const auto missing = [this] {
    for (std::size_t server = 0; server < plan_.servers; ++server) {
      if (links_[0]->missing(server)) return true;
    }
    return false;
  };
  while (missing() && now() < until.at && go_on()) {
    std::this_thread::sleep_for(kPause);
  }
  if (plan_.goes_on) {
    for (Standing& standing : standings_->fragments) {
      standing.contact.store(Standing::Contact::made, std::memory_order_release);
    }
    return;
  }
  // Every part of the vector, whatever a round takes; whoever was waited for before, each has time.
  for (std::size_t part = 0; part < plan_.parts; ++part) {
    round.begin(training.discipline, part, from_now());
  }
}

std::unique_ptr<TrainerSync> make_trainer_sync(const SyncPlan& plan, std::size_t workers) {
  if (plan.pace.kind == Pace::Kind::background) return std::make_unique<Background>(plan);
  return std::make_unique<Foreground>(plan, workers);
}

}  // namespace leashed
