#include <map>
#include <string>

#include "leashed/base/choice.h"
#include "leashed/graph/graph_planner.h"

// Every node there is: X(name) for `plan_name_node` in a file of blocks/.
#define LEASHED_NODES(X) \
  X(input)               \
  X(embedding)           \
  X(concat)              \
  X(dot)                 \
  X(fm)                  \
  X(sum)                 \
  X(product)             \
  X(cross)               \
  X(dense)               \
  X(batch_norm)          \
  X(data_norm)           \
  X(relu)                \
  X(tanh)                \
  X(sigmoid)             \
  X(dropout)             \
  X(sampled_logits)      \
  X(in_batch)            \
  X(zip)                 \
  X(attention_unit)      \
  X(attention_scores)    \
  X(attention_pool)      \
  X(gru)                 \
  X(augru)

namespace leashed {

#define LEASHED_DECLARE(name) void plan_##name##_node(const Node&, GraphPlanner&);
LEASHED_NODES(LEASHED_DECLARE)

namespace {

#define LEASHED_ENTRY(name) {#name, plan_##name##_node},
const std::map<std::string, void (*)(const Node&, GraphPlanner&)> kNodes = {
    LEASHED_NODES(LEASHED_ENTRY)};

}  // namespace

void GraphPlanner::add(std::size_t index) {
  index_ = index;
  find_choice(kNodes, "node", node().kind.name)(node(), *this);
}

}  // namespace leashed
