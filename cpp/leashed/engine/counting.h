// What a run's steps count up to, by worker (telemetry.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/engine/step_observer.h"
#include "leashed/engine/telemetry.h"

namespace leashed {

class Counting final : public StepObserver {
 public:
  // Who carries out updates: the disciplines, which tell how long each took, or a mode's server.
  enum class Updates { by_disciplines, by_server };
  // `loss_weight`: of one batch's loss in a worker's running mean. One telemetry for all workers
  // where there is one.
  Counting(std::size_t telemetries, double loss_weight, Updates updates = Updates::by_disciplines)
      : workers_(telemetries), loss_weight_(loss_weight), updates_(updates) {}

  WorkerTelemetry& of(std::size_t worker) { return workers_[workers_.size() > 1 ? worker : 0]; }
  std::vector<const WorkerTelemetry*> all() const {
    std::vector<const WorkerTelemetry*> all;
    for (const WorkerTelemetry& worker : workers_) all.push_back(&worker);
    return all;
  }
  // The losses of so many passes over the data are to be kept, from the one of that batch on.
  void keep_passes(const BatchSource& batches, std::uint64_t first_batch, std::size_t passes);
  // Steps tell no loss.
  void without_losses() { finds_losses_ = false; }

  void claimed(const WorkerStep& step) override;
  void read(const WorkerStep& step) override { of(step.worker).read_seconds += step.seconds; }
  void used(const WorkerStep& step) override;
  void published(const WorkerStep& step, const Publication& what) override;

 private:
  std::vector<WorkerTelemetry> workers_;
  const double loss_weight_;
  const Updates updates_;
  bool finds_losses_ = true;
  const BatchSource* batches_ = nullptr;
  std::uint64_t first_pass_ = 0;
};

}  // namespace leashed
