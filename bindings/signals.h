// Python's signals while something lasts that has no need of Python.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>

#include "leashed/base/clock.h"

namespace leashed {

namespace py = pybind11;

// Asked without the GIL, again and again, while something lasts: true, or throws what a signal's
// handler raises, such as KeyboardInterrupt. Looks only so often: for the GIL it may have to wait
// for other threads of Python.
class SignalWatch {
 public:
  bool operator()() {
    const double asked = now();
    if (asked < next_) return true;
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    const double looked = now();
    next_ = looked + std::max(kInterval, kShare * (looked - asked));
    return true;
  }

 private:
  static constexpr double kInterval = 0.005;  // seconds
  static constexpr double kShare = 20;        // of what the look before has waited

  double next_ = now() + kInterval;
};

}  // namespace leashed
