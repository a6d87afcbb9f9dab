// Python's signals while something lasts that has no need of Python.
#pragma once

#include <pybind11/pybind11.h>

#include "leashed/base/clock.h"

namespace leashed {

namespace py = pybind11;

// Asked without the GIL, again and again, while something lasts: true, or throws what a signal's
// handler raises, such as KeyboardInterrupt. Looks only so often: for the GIL it may have to wait
// for other threads of Python.
class SignalWatch {
 public:
  bool operator()() {
    if (now() < next_) return true;
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    next_ = now() + kInterval;
    return true;
  }

 private:
  static constexpr double kInterval = 0.005;  // seconds

  double next_ = now() + kInterval;
};

}  // namespace leashed
