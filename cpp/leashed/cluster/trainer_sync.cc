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
  const auto lateness = std::make_shared<std::vector<Lateness>>(plan.servers);
  for (std::size_t slot = 0; slot < exchanging; ++slot) {
    links_.push_back(std::make_unique<ServerLinks>(plan.dimension, plan.owner, plan.servers,
                                                   plan_.parts, plan.codec, lateness));
  }
}

Traffic TrainerSync::traffic() const {
  Traffic sum = ring_.traffic();
  for (const auto& links : links_) {
    const Traffic traffic = links->traffic();
    sum.out += traffic.out;
    sum.in += traffic.in;
  }
  return sum;
}

std::uint64_t TrainerSync::not_finite() const {
  std::uint64_t sum = counters_.not_finite.load(std::memory_order_relaxed);
  for (const auto& links : links_) sum += links->not_finite();
  return sum;
}

void TrainerSync::end_workers() {
  ring_.want_to_leave();
  workers_ended_.store(true, std::memory_order_release);
}

Round TrainerSync::make_round(std::size_t slot) {
  return {plan_.machine,
          uses_servers() ? links_[slot].get() : nullptr,
          uses_servers() ? nullptr : &ring_,
          plan_.custom,
          plan_.dimension,
          counters_};
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
  Deadline until = deadline(training.stopped);
  until.go_on = &go_on;
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
  // Every part of the vector, whatever a round takes.
  for (std::size_t part = 0; part < plan_.parts; ++part) {
    round.begin(training.discipline, part, until);
  }
}

std::unique_ptr<TrainerSync> make_trainer_sync(const SyncPlan& plan, std::size_t workers) {
  if (plan.pace.kind == Pace::Kind::background) return std::make_unique<Background>(plan);
  return std::make_unique<Foreground>(plan, workers);
}

}  // namespace leashed
