// Ctrl-C while the core works without the GIL.
#pragma once

#include <pybind11/pybind11.h>

namespace leashed {

// True at Ctrl-C; any other exception of a signal handler is thrown.
inline bool interrupted() {
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() == 0) return false;
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw pybind11::error_already_set();
  PyErr_Clear();
  return true;
}

}  // namespace leashed
