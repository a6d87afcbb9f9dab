#include "leashed/engine/saving.h"

#include <chrono>
#include <thread>

#include "leashed/discipline/discipline.h"
#include "leashed/staleness/statistics.h"

namespace leashed {
namespace {

constexpr int kTries = 20;
constexpr auto kPause = std::chrono::microseconds(100);  // in which an update is observed

}  // namespace

Saving::Saving(const Training& training, const Layout& layout, const StalenessPolicy* staleness)
    : training_(training),
      layout_(layout),
      statistics_(staleness ? staleness->statistics() : nullptr) {
  if (statistics_) statistics_->save(before_);
}

std::uint64_t Saving::used_batches(std::uint64_t t) const {
  std::uint64_t used = t - training_.from.updates;
  if (training_.discipline.lockstep()) return training_.from.batches + used * training_.workers;
  for (const WorkerTelemetry* worker : training_.counting.all()) {
    used += worker->dropped.get() + worker->excluded.get();
  }
  return training_.from.batches + used;
}

bool Saving::fit(const std::vector<std::uint64_t>& numbers, std::uint64_t t) const {
  const std::uint64_t applied = t - training_.from.updates;
  const auto binned = [](const auto& all) { return StalenessStatistics::binned(all); };
  return numbers[0] - before_[0] == applied && binned(numbers) - binned(before_) == applied;
}

bool Saving::running_fits(const Checkpoint& taken, std::uint64_t t) const {
  // When workers are told to stop, a gradient may be given up that is averaged already.
  if (!taken.running || training_.workers > 1 || training_.stop.stopped()) return true;
  return taken.running->gradients == used_batches(t) - training_.from.batches;
}

bool Saving::try_to_take(Checkpoint& taken) {
  bool fits = !statistics_;
  const bool alone = training_.workers == 1;
  if (alone) taken.running = training_.source.running();
  if (statistics_) statistics_->save(taken.staleness);
  training_.discipline.with_state([&](const DisciplineState& state) {
    // The state may be of some time after that copy, where there was a lock to wait for, or of some
    // time before now, where a long vector was copied.
    if (!fits && !(fits = fit(taken.staleness, state.t))) {
      statistics_->save(taken.staleness);
      fits = fit(taken.staleness, state.t);
    }
    if (!alone || !running_fits(taken, state.t)) taken.running = training_.source.running();
    if (!fits || !(fits = running_fits(taken, state.t))) return;
    taken.position = {state.t, used_batches(state.t)};
    taken.assign(state, layout_);
  });
  return fits;
}

std::optional<Checkpoint> Saving::take(double initial_loss) {
  Checkpoint taken;
  taken.initial_loss = initial_loss;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    if (try_to_take(taken)) return taken;
  }
  return std::nullopt;
}

}  // namespace leashed
