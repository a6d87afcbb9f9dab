// The workers' own models, of a mode that has them (policy/worker_rule.h): θ and the rule's state
// of each. Who drives the mode says when; what touches one model is one call after the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "leashed/server/parameter_server.h"
#include "leashed/server/sharding.h"

namespace leashed {

// What a worker's model takes of what it was granted.
struct PulledModel {
  std::uint32_t n = 0, c = 0;     // as Grant has them
  std::uint64_t t = 0;            // updates to it
  const float* values = nullptr;  // null: nothing was pulled
};

PulledModel pulled_model(const Grant& grant);

class OwnModels {
 public:
  // None where the mode has none. from_server: grants bring what a server holds.
  OwnModels(const modes::WorkerRule& rule, bool from_server, const DisciplineContext& context);
  OwnModels(const ParameterServer& server, const DisciplineContext& context)
      : OwnModels(server.rule(), server.holds(), context) {}

  const float* operator[](modes::Node node) const { return models_[node].buffer.data(); }

  // w ← (1 − α) w + α w̃ with what was granted. The first grant is taken whole; of peers, who hold
  // nothing, it brings what all begin with, and later ones bring nothing. Of one shard: what was
  // granted are the parameters in `spans`, and every shard grants once before one grants again.
  void take(modes::Node node, const PulledModel& pulled, std::span<const ShardSpan> spans);
  void take(modes::Node node, const PulledModel& pulled) { take(node, pulled, {&whole_, 1}); }
  void take(const Grant& grant, std::span<const ShardSpan> spans) {
    take(grant.node, pulled_model(grant), spans);
  }
  void take(const Grant& grant) { take(grant, {&whole_, 1}); }
  // w ← rule(w, gradient). Where the server gets the same gradient, by the same schedule as there:
  // at as many updates as what was granted last has had.
  void step(modes::Node node, const float* gradient);
  // w is θ from now on, and the rule's state as at the beginning. `granted`: what is granted next
  // is not taken whole.
  void renew(modes::Node node, const DisciplineContext& context, const float* theta, bool granted);
  // The models become their mean.
  void meet(std::span<const modes::Node> nodes);
  void visit(Archive& archive);
  // Gives θ of each up: [workers][dimension], empty without models.
  std::vector<float> release();
  // Of all models, or of the nodes', until the next meeting or mean.
  const float* mean();
  const float* mean(std::span<const modes::Node> nodes);

 private:
  struct Model {
    AlignedArray<float> buffer;
    std::uint64_t t = 0;         // steps
    std::uint64_t server_t = 0;  // updates to what was granted last
    std::size_t taken = 0;       // parameters of its first grant

    void visit(Archive& archive) { archive(t, server_t, taken); }
  };

  void add(modes::Node node);

  const modes::WorkerRule rule_;
  const bool from_server_;
  const Updater updater_;
  const std::size_t dimension_;
  const ShardSpan whole_;
  std::vector<Model> models_;
  std::vector<float> mean_;
};

}  // namespace leashed
