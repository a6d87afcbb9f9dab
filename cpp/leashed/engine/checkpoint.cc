#include "leashed/engine/checkpoint.h"

#include <algorithm>
#include <string>

#include "leashed/base/error.h"
#include "leashed/discipline/context.h"
#include "leashed/discipline/observed.h"
#include "leashed/sparse/lazy_shrink.h"
#include "leashed/staleness/statistics.h"
#include "leashed/update/layout.h"
#include "leashed/update/rule.h"

namespace leashed {

void Checkpoint::assign(const DisciplineState& state, const Layout& layout) {
  dimension = layout.dimension;
  vectors.clear();
  vectors.reserve((1 + layout.states) * layout.dimension);
  for (std::size_t k = 0; k <= layout.states; ++k) {
    const float* vector = state.buffer + k * layout.stride();
    vectors.insert(vectors.end(), vector, vector + layout.dimension);
  }
  const float* norms = state.buffer + layout.last_updates();
  last_updates.assign(norms, norms + layout.blocks);
  behind.clear();
  shrink = {};
  if (!state.behind.shrink) return;
  behind.assign(state.behind.theta, state.behind.theta + layout.dimension);
  shrink = *state.behind.shrink;
}

void require_fit(const Checkpoint& from, const Layout& layout, const SparseUse& sparse) {
  const std::size_t d = layout.dimension;
  if (from.dimension != d || from.vectors.size() != (1 + layout.states) * d) {
    throw Error("vectors must have shape [" + std::to_string(1 + layout.states) + ", " +
                std::to_string(d) + "]");
  }
  if (from.last_updates.size() != layout.blocks) {
    throw Error("last_updates must have length " + std::to_string(layout.blocks));
  }
  if (from.mode.vectors.size() % d != 0)
    throw Error("a mode's vectors must have length " + std::to_string(d));
  if (from.behind.empty()) return;
  if (from.behind.size() != d) throw Error("behind must have length " + std::to_string(d));
  if (sparse.active == 0) return;
  const std::size_t parts = LazyShrink::parts(sparse.shape.intercepts, sparse.active);
  if (from.shrink.done.size() != parts || from.shrink.next >= parts) {
    throw Error("data has other columns than those of the run to resume; give the same data");
  }
}

Resumed::Resumed(const Checkpoint& from, const Layout& layout, const StalenessPolicy& staleness,
                 DisciplineContext& context)
    : state_(layout.length()) {
  for (std::size_t k = 0; k <= layout.states; ++k) {
    std::copy_n(from.vectors.data() + k * layout.dimension, layout.dimension,
                state_.data() + k * layout.stride());
  }
  std::copy_n(from.last_updates.data(), layout.blocks, state_.data() + layout.last_updates());
  context.state = state_.data();
  context.t = from.position.updates;
  if (StalenessStatistics* statistics = staleness.statistics()) statistics->restore(from.staleness);
  if (context.sparse.active > 0 && !from.behind.empty()) {
    context.behind = {from.behind.data(), &from.shrink};
  }
}

}  // namespace leashed
