// What the blocks share that compare what an example chose with other items.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "leashed/data/negatives.h"
#include "leashed/graph/graph_planner.h"

namespace leashed {

inline constexpr float kHidden = -1e30f;  // a logit: finite, and e to it is 0

inline const std::map<std::string, Negatives::Sampling> kSamplings = {
    {"uniform", Negatives::Sampling::uniform}, {"log_uniform", Negatives::Sampling::log_uniform}};

// The node's table, whose rows are as wide as the node's only input.
inline std::size_t table_of_items(GraphPlanner& graph) {
  const auto& tables = graph.plan().tables;
  const std::size_t table = graph.size("table", 0);
  if (table >= tables.size()) {
    graph.fail("table " + std::to_string(table) + " is not among the " +
               std::to_string(tables.size()) + " there are");
  }
  if (graph.width(0) != tables[table].dim) {
    graph.fail("its input must have the width of a row of table " + tables[table].name + ", " +
               std::to_string(tables[table].dim) + ", but has " + std::to_string(graph.width(0)));
  }
  return table;
}

}  // namespace leashed
