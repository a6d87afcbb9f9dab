// An observer that keeps what it is told, by worker, to compare a training with its replay.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "leashed/engine/step_observer.h"

namespace leashed {

class Told final : public StepObserver {
 public:
  // k, what it was computed on and by, the loss, the gradient.
  using Gradient =
      std::tuple<std::uint64_t, std::uint64_t, std::vector<float>, double, std::size_t>;
  // Whether it was, or was excluded; the version replaced, the factor, τᶜ, τˢ, failed attempts.
  using Outcome =
      std::tuple<bool, bool, std::uint64_t, double, std::uint64_t, std::uint64_t, std::uint64_t>;

  explicit Told(std::size_t workers) : gradients(workers), outcomes(workers) {}

  bool needs_logits() const override { return true; }
  bool needs_gradients() const override { return true; }
  void claimed(const WorkerStep&) override {}
  void computed(const WorkerStep& step) override {
    CHECK(step.batch->logits);
    gradients[step.worker].emplace_back(step.k, step.view.t,
                                        std::vector(step.gradient.begin(), step.gradient.end()),
                                        step.loss_sum, step.batch->size);
  }
  // A replay does not compute again what was dropped under a discipline.
  void published(const WorkerStep& step, const Publication& what) override {
    if (!what.published && !step.gradient.empty()) gradients[step.worker].pop_back();
    outcomes[step.worker].emplace_back(what.published, what.excluded, what.t,
                                       what.published ? what.factor : 0, what.staleness_compute,
                                       what.staleness_schedule, what.tries);
  }

  std::vector<std::vector<Gradient>> gradients;
  std::vector<std::vector<Outcome>> outcomes;
};

}  // namespace leashed
