// What a mode decided, as Python has it.
#pragma once

#include <utility>

#include "leashed/server/parameter_server.h"
#include "read.h"

namespace leashed {

inline void add_counts(py::dict& to, ModeCounts counts) {
  to["late"] = counts.late;
  to["stale"] = counts.stale;
  to["straggler"] = counts.straggler;
  to["lost"] = counts.lost;
  to["departures"] = counts.departures;
  to["applied"] = counts.applied;
  to["exchanges"] = counts.exchanges;
  to["meetings"] = counts.meetings;
  to["data_staleness"] = to_array(std::move(counts.data_staleness));
  to["worker_examples"] = to_array(std::move(counts.worker_examples));
}

}  // namespace leashed
