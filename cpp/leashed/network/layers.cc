#include <map>
#include <string>

#include "leashed/base/choice.h"
#include "leashed/network/planner.h"

// Every layer there is: X(name) for `plan_name` in a file of layers/.
#define LEASHED_LAYERS(X) \
  X(dense)                \
  X(conv2d)               \
  X(max_pool)             \
  X(relu)                 \
  X(tanh)                 \
  X(sigmoid)

namespace leashed {

#define LEASHED_DECLARE(name) void plan_##name(const Layer&, Planner&);
LEASHED_LAYERS(LEASHED_DECLARE)

namespace {

#define LEASHED_ENTRY(name) {#name, plan_##name},
const std::map<std::string, void (*)(const Layer&, Planner&)> kLayers = {
    LEASHED_LAYERS(LEASHED_ENTRY)};

}  // namespace

void Planner::add(const Layer& layer) {
  find_choice(kLayers, "layer", layer.name)(layer, *this);
  ++index_;
}

}  // namespace leashed
