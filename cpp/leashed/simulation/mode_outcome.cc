#include "leashed/simulation/mode_outcome.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace leashed {
namespace {

// Examples, of batches that a server has had once.
std::uint64_t taken(const ModeCounts& counts) {
  const auto& pushed = counts.worker_examples;
  const auto all = std::accumulate(pushed.begin(), pushed.end(), std::uint64_t{0});
  return all - counts.late - counts.missing;
}

}  // namespace

void ModeOutcome::with_theta(const std::function<void(const float* theta)>& f) {
  Shards& shards = played_.shards;
  if (shards[0].has_global_model()) {
    std::vector<ParameterVector::Pin> latest;
    for (std::size_t s = 0; s < shards.size(); ++s) latest.push_back(shards[s].holder().pull());
    return f(shards.assembled([&](std::size_t shard) { return latest[shard].data(); }, held_));
  }
  nodes_.clear();
  for (std::uint32_t w = 0; w < played_.players.size(); ++w) {
    if (played_.members.there(w)) nodes_.push_back(w);
  }
  if (nodes_.empty()) {
    nodes_.resize(played_.players.size());
    std::iota(nodes_.begin(), nodes_.end(), 0);
  }
  f(played_.models.mean(nodes_));
}

void ModeOutcome::evaluate() {
  with_theta([&](const float* theta) {
    Evaluated e{};
    e.seconds = in_seconds(played_.now);
    e.updates = played_.updates();
    e.live_vectors = played_.shards.live_vectors();
    e.gradients = played_.telemetry.gradients.get();
    played_.telemetry.staleness.merge_bins_into(e.staleness);
    played_.watch.evaluate(theta, std::move(e));
  });
}

void ModeOutcome::enter_evaluation() {
  const double every = played_.options.evaluate_every;
  if (!std::isfinite(every)) return;
  const std::int64_t next = after(played_.now, std::max<std::int64_t>(1, in_ns(every)));
  played_.timeline.enter({next, ModeEvent::evaluate, 0});
}

void ModeOutcome::settled(std::uint32_t worker, std::size_t shard, const Publication& publication) {
  played_.watch.observers.published({.worker = worker}, publication);
  if (publication.published) staleness_[shard].add(publication.staleness_compute);
}

ModeResult ModeOutcome::finish(std::uint64_t events) {
  ModeResult result;
  Shards& shards = played_.shards;
  WorkerTelemetry& telemetry = played_.telemetry;
  const double seconds = in_seconds(played_.now);
  for (ModePlayer& player : played_.players) player.parts.clear();
  if (!played_.watch.interrupted() && !played_.watch.evaluated_at(seconds, played_.updates())) {
    evaluate();
  }
  result.simulation.events = events;
  TrainResult& training = result.simulation.training;
  with_theta(
      [&](const float* theta) { training.parameters.assign(theta, theta + played_.dimension()); });
  training.updates = played_.updates();
  played_.watch.end(training, played_.options.until.batches);
  training.elapsed = seconds;
  double away = played_.away_seconds;
  for (std::uint32_t w = 0; w < played_.players.size(); ++w) {
    if (!played_.members.there(w)) away += in_seconds(played_.now - played_.players[w].away_since);
  }
  telemetry.running_seconds = seconds * static_cast<double>(played_.players.size()) - away;
  result.counts = shards[0].counts();
  result.counts.lost = played_.lost;
  result.counts.departures = played_.departures;
  for (std::size_t s = 0; s < shards.size(); ++s) telemetry.rows.add(shards[s].counts().rows);
  training.add(telemetry);
  training.worker_updates = result.counts.worker_kept;
  training.peak_vectors = shards.peak_vectors();
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const ModeCounts& counts = shards[s].counts();
    const std::uint64_t missing =
        taken(shards[0].counts()) - std::min(taken(shards[0].counts()), taken(counts));
    result.shards.push_back({shards.spans(s),
                             shards[s].holder().pull().t(),
                             {},
                             counts.applied,
                             counts.stale,
                             counts.straggler,
                             counts.late,
                             missing});
    staleness_[s].merge_into(result.shards.back().staleness);
  }
  result.models = played_.models.release();
  return result;
}

}  // namespace leashed
