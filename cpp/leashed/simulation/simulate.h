// A training in virtual time: gradients, updates and the discipline are the real ones, carried out
// by one thread; what they take is drawn. The same seed gives the same bits, whatever else the
// machine does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "leashed/data/stream_batches.h"
#include "leashed/engine/callbacks.h"
#include "leashed/engine/result.h"
#include "leashed/simulation/membership.h"
#include "leashed/simulation/trainers.h"

namespace leashed {

class Table;

struct SimulationOptions {
  std::size_t workers;  // of each trainer
  std::size_t batch_size;
  std::uint64_t seed;
  StopRules until;            // seconds are virtual ones; milestones are not looked at
  double evaluate_every = 0;  // virtual seconds; infinite: at the beginning and the end alone
  // What a gradient, an attempt to update and a copy of theta take (durations.h).
  Choice compute, update, copy;
  // What a mode is told, and when, in seconds.
  std::vector<std::pair<double, std::uint32_t>> commands = {};
  // Of a mode's transfers (network.h), in place of `copy`, and of its workers.
  std::optional<Choice> network = {};
  MemberOptions members = {};
  std::vector<std::shared_ptr<Table>> tables = {};    // that the source reads
  std::vector<std::uint32_t> servers_of_tables = {};  // of several (server/shards.h)
  // What is trained on where the rows do not lie in memory: then the data have none. Null: those.
  const StreamedData* stream = nullptr;
  std::vector<StepObserver*> observers = {};  // who hears of steps
};

struct SimulationResult {
  TrainResult training;  // its seconds are virtual ones, but for peak_memory_bytes all is played
  // The seconds in which so many workers were in their updates.
  std::vector<double> updating_seconds;
  // When their number changed, and to what, of the first kChanges changes.
  static constexpr std::size_t kChanges = std::size_t{1} << 16;
  std::vector<std::pair<double, std::uint32_t>> updating;
  std::uint64_t events = 0;
  TrainerCounts trainers;
  std::vector<float> models;  // of several trainers their replicas, one after the other
};

// Throws Error for what cannot be played. The replicas, one for each trainer of the plan, were made
// from `choice` and contexts like this one, each with a staleness policy of its own. Batches, and
// the updates that end a run, are those of all trainers together.
SimulationResult simulate(const GradientSource& source, const DatasetView& data,
                          const DatasetView* validation, const Choice& choice,
                          std::span<const std::unique_ptr<Discipline>> replicas,
                          const DisciplineContext& context, const SimulationOptions& options,
                          const TrainCallbacks& callbacks, const TrainersPlan& plan = {});

}  // namespace leashed
