// What trainings have in common, on threads and in virtual time: stop rules, callbacks and results
// as Python has them.
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "leashed/engine/monitor.h"
#include "leashed/engine/result.h"

namespace leashed {

namespace py = pybind11;

using Settings = std::map<std::string, double>;

StopRules to_rules(const Settings& until, std::vector<double> milestones);

// Of a call that has the GIL and gives it back; what is given must stay. Ctrl-C while Python runs a
// callback: Python raises there what it would tell us, so it is kept in `interrupted_in_callback`.
TrainCallbacks callbacks_of(const std::optional<py::function>& progress,
                            const std::optional<py::function>& checkpoint,
                            bool& interrupted_in_callback);

py::dict to_dict(TrainResult result);

}  // namespace leashed
