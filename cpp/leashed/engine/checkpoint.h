// Everything that a training can go on from, of one moment.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "leashed/base/archive.h"
#include "leashed/engine/position.h"
#include "leashed/model/gradient_source.h"
#include "leashed/sparse/runs.h"

namespace leashed {

struct DisciplineContext;
struct DisciplineState;
struct Layout;
struct SparseUse;
class StalenessPolicy;

struct Checkpoint {
  Position position;
  // The loss at the training's beginning; NaN where it was never evaluated.
  double initial_loss = std::numeric_limits<double>::quiet_NaN();
  std::size_t dimension = 0;             // d
  std::vector<float> vectors;            // theta and the rule's states, [1 + S][d]
  std::vector<float> last_updates;       // norms, by variable, with a stage-aware staleness policy
  std::vector<std::uint64_t> staleness;  // what the policy has gathered; empty: nothing
  // Theta without the decay that it has yet to get, and how far that has come; empty: it has all.
  std::vector<float> behind;
  ShrinkProgress shrink;
  // Of a source that averages them.
  std::optional<RunningStatistics> running = {};
  // By a mode, what its server and its workers have beside all this; no words: there is no mode.
  Archived mode = {};

  // All but the position, the loss, what the policy has gathered, running statistics and a mode's.
  void assign(const DisciplineState& state, const Layout& layout);
};

// Throws Error where the checkpoint is of other parameters, another rule or other data.
void require_fit(const Checkpoint& from, const Layout& layout, const SparseUse& sparse);

// Has a discipline's context, and its policy, go on from a checkpoint that fits: what the context
// then refers to is here and in the checkpoint.
class Resumed {
 public:
  Resumed(const Checkpoint& from, const Layout& layout, const StalenessPolicy& staleness,
          DisciplineContext& context);

 private:
  std::vector<float> state_;
};

}  // namespace leashed
