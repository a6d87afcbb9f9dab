// What trainings on arrays and their replays are put together from, as Python gives it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>

#include "choice.h"
#include "leashed/training/assemble.h"

namespace leashed {

using PyRecording = std::tuple<std::string, std::string, FloatArray>;  // Recording

// A discipline or a mode, a rule and a staleness policy.
struct PyChoices {
  const PyChoice &discipline, &rule, &staleness;
};

// What is given must stay. Throws where theta or the data do not suit the source.
Assembly assembly_of(const GradientSource& source, const FloatArray& theta, const py::object& x,
                     const py::array& y, const std::optional<FloatArray>& weights,
                     const PyChoices& choices, std::uint64_t seed);

std::optional<Recording> to_recording(const std::optional<PyRecording>& record);

// Calls f, which may write a file, without the GIL: where it cannot, an OSError that names it.
template <class F>
auto without_gil(const F& f) {
  try {
    const py::gil_scoped_release release;
    return f();
  } catch (const std::filesystem::filesystem_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, error.path1().c_str());
    throw py::error_already_set();
  }
}

}  // namespace leashed
