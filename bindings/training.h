// What trainings, in virtual time too, and replays are made from, and how a run is watched: each
// one object of Python, whose parts are given by name.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "assembly.h"
#include "train.h"

namespace leashed {

struct PyTraining {
  Assembly parts;
  std::size_t workers, batch_size;
  std::uint64_t seed;
  std::optional<PyMetrics> metrics;
  std::vector<py::object> kept;  // what the parts refer to
};

struct PyWatch {
  StopRules until;
  double evaluate_every;  // seconds; 0: as often as keeps evaluations to a tenth of one thread
  std::optional<py::function> progress, checkpoint;
  double checkpoint_every;
  std::uint64_t checkpoint_updates;  // for which all workers wait; 0: for none
  std::optional<py::function> saving;
  std::optional<py::function> judge, keep;  // of passes; both or none
  std::optional<py::function> wanted;
};

}  // namespace leashed
