// Where the values of a graph lie, and who writes their gradients: found once, when the graph is
// planned.
//
// Values that are put side by side lie so from the start: each is written where the reader of the
// whole expects it, so that concatenation copies nothing. What other blocks read together lies
// together too. A value has one place: it lies in the first concatenation that is the last to read
// it, since the gradient of the whole is written in one go, before anything can be added to it.
//
// Blocks run backwards in reverse. Of those that read a value, the first to come then writes the
// gradient, the others add.
#pragma once

#include <cstddef>
#include <vector>

#include "leashed/graph/graph_plan.h"

namespace leashed {

struct GraphLayout {
  explicit GraphLayout(const GraphPlan&);

  struct Place {
    std::size_t buffer, column;
  };
  std::vector<Place> places;            // of each value that there is
  std::vector<std::size_t> widths;      // of the buffers
  std::vector<std::vector<char>> adds;  // of each block's inputs: whether it adds its gradient
};

}  // namespace leashed
