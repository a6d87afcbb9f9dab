#include "leashed/network/plan.h"

#include <algorithm>

#include "leashed/base/error.h"
#include "leashed/base/extent.h"
#include "leashed/network/planner.h"

namespace leashed {

Plan::Plan(Shape input, const std::vector<Layer>& layers, Isa isa)
    : features(extent({input.channels, input.height, input.width})) {
  if (features == 0)
    throw Error("the input shape is empty; every one of its sizes must be at least 1");
  if (features > kMostValues)
    throw Error("the input shape is too large for any memory; make it smaller");
  if (layers.empty()) throw Error("a network needs at least one layer");
  Planner planner(*this, input, isa);
  for (const Layer& layer : layers) planner.add(layer);
  if (dimension == 0)
    throw Error("a network needs at least one layer with parameters (Dense, Conv2d)");
  classes = planner.shape().size();
  flat = dense.empty() ? classes : dense.front().inputs;
  first_trained =
      static_cast<std::size_t>(std::find_if(spatial.begin(), spatial.end(),
                                            [](const auto& s) { return s->has_parameters; }) -
                               spatial.begin());
}

}  // namespace leashed
