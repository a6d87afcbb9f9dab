// What every discipline is made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/sparse/runs.h"
#include "leashed/staleness/registry.h"

namespace leashed {

class Rule;

struct DisciplineContext {
  const float* initial;  // theta [dimension], copied
  std::size_t dimension;
  std::size_t workers;
  std::size_t readers;  // that may hold a snapshot besides the workers
  const Rule& rule;     // rule and policy must outlive the discipline
  const StalenessPolicy& staleness = no_staleness_policy();
  std::vector<std::size_t> block_ends = {};  // where theta's variables end; empty: it is one
  // To go on from: a buffer that with_state gave, in place of `initial`, and its version.
  const float* state = nullptr;
  std::uint64_t t = 0;
  SparseUse sparse = {};
  Behind behind = {};  // of `state`, where sparse runs are made
  // Threads beside the workers that transform theta: at most so many at once.
  std::size_t synchronisers = 0;
};

}  // namespace leashed
