// What blocks that read sequences have in common.
#pragma once

#include <algorithm>
#include <cstddef>

#include "leashed/graph/graph_planner.h"

namespace leashed {

// From a row's floats on, zeros for all steps that are not there.
inline void clear_behind(float* row, std::size_t steps, const Sequence& sequence) {
  std::fill(row + steps * sequence.dim, row + sequence.length * sequence.dim, 0.0f);
}

// The sequence that a query, its input 0, attends to: input 1. Fails where they do not fit.
inline const Sequence& attended(const GraphPlanner& graph) {
  const Sequence& keys = graph.sequence(1);
  if (graph.width(0) != keys.dim) {
    graph.fail("the query must be as wide as a key, " + std::to_string(keys.dim) + ", but is " +
               std::to_string(graph.width(0)));
  }
  return keys;
}

// The sequence that scores, input `input`, are of: one float for each of its steps.
inline void check_scores(const GraphPlanner& graph, std::size_t input, const Sequence& of) {
  const Sequence& scores = graph.sequence(input);
  if (scores.dim == 1 && scores.length == of.length && scores.feature == of.feature) return;
  graph.fail("its input " + std::to_string(input) +
             " must be scores of the sequence it reads, one for each step");
}

}  // namespace leashed
