// What trainings have in common, on threads and in virtual time: stop rules, callbacks and results
// as Python has them.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "assembly.h"
#include "leashed/engine/callbacks.h"
#include "leashed/engine/progress_metrics.h"
#include "leashed/engine/result.h"

namespace leashed {

namespace py = pybind11;

struct PyWatch;

using Settings = std::map<std::string, double>;

StopRules to_rules(const Settings& until, std::vector<double> milestones);

// What is kept of a training's outputs: the user of each row, or None, and how many of their rows.
using PyMetrics = std::pair<std::optional<UserArray>, std::size_t>;
// Where that is asked for, sees to it that the rows in memory have users; those of a stream bring
// their own. ValueError where the source gives no logits.
void keep_metrics(std::optional<ProgressMetrics>& metrics, const std::optional<PyMetrics>& asked,
                  std::size_t workers, Assembly& parts);

// Of a call that has the GIL and gives it back; what is given must stay. Ctrl-C while Python runs a
// callback: Python raises there what it would tell us, so it is kept in `interrupted_in_callback`.
TrainCallbacks callbacks_of(const PyWatch& watch, bool& interrupted_in_callback);

py::dict to_dict(TrainResult result);

}  // namespace leashed
