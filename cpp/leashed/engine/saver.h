// Who can say what a training has reached, for a checkpoint.
#pragma once

#include <optional>

#include "leashed/engine/checkpoint.h"

namespace leashed {

class Saver {
 public:
  virtual ~Saver() = default;

  // Of the monitor's thread. Nothing where there is no moment yet of which all is known; try again.
  virtual std::optional<Checkpoint> take(double initial_loss) = 0;
};

}  // namespace leashed
