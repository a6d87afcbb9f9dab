// What a worker of a mode computes on its lease when its push falls due, and sends: a gradient, or
// its own model after so many steps.
#pragma once

#include <cstdint>

#include "leashed/simulation/played_mode.h"
#include "leashed/simulation/watched_gradient.h"

namespace leashed {

class ModeGradients {
 public:
  explicit ModeGradients(PlayedMode& played)
      : played_(played), gradient_(played.source, played.watch) {}

  // The rows of the worker's lease are copied, as of now.
  void pull_rows(std::uint32_t worker);
  // Again those of one of several servers.
  void renew_rows(std::uint32_t worker, std::size_t shard);
  // False: the run is over meanwhile.
  bool compute(std::uint32_t worker);
  // Of what was computed last, one server's part.
  Payload payload(std::uint32_t worker, std::size_t shard);

 private:
  const float* theta_of(std::uint32_t worker);
  void cut(ModePlayer& player);
  void cut_rows(ModePlayer& player);

  PlayedMode& played_;
  WatchedGradient gradient_;
  // A gradient or a model, and the rows' gradients; and what was pulled, together.
  AlignedArray<float> sent_, row_gradients_, pulled_;
  Batch batch_;
  ShownRows shown_;
  std::vector<RowPush*> row_pushes_;
};

}  // namespace leashed
