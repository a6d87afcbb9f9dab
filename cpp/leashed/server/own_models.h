// The workers' own models, of a mode that has them (policy/worker_rule.h): θ and the rule's state
// of each. Who drives the mode says when; what touches one model is one call after the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "leashed/server/parameter_server.h"

namespace leashed {

class OwnModels {
 public:
  // None where the server's mode has none. The server must stay.
  OwnModels(ParameterServer& server, const DisciplineContext& context);

  const float* operator[](modes::Node node) const { return models_[node].buffer.data(); }

  // w ← (1 − α) w + α w̃ with what was granted. The first grant is taken whole; of peers, who hold
  // nothing, it brings what all begin with, and later ones bring nothing.
  void take(const Grant& grant);
  // w ← rule(w, gradient).
  void step(modes::Node node, const float* gradient);
  // w is θ from now on, and the rule's state as at the beginning. `granted`: what is granted next
  // is not taken whole.
  void renew(modes::Node node, const DisciplineContext& context, const float* theta, bool granted);
  // The models become their mean.
  void meet(std::span<const modes::Node> nodes);
  // Of all models, or of the nodes', until the next meeting or mean.
  const float* mean();
  const float* mean(std::span<const modes::Node> nodes);

 private:
  struct Model {
    AlignedArray<float> buffer;
    std::uint64_t t = 0;  // steps
    bool granted = false;
  };

  void add(modes::Node node);

  const modes::WorkerRule rule_;
  const bool from_server_;
  const Updater& updater_;
  const std::size_t dimension_;
  std::vector<Model> models_;
  std::vector<float> mean_;
};

}  // namespace leashed
