// A Choice from Python: (name, {key: number, array of numbers, or another such pair}).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "leashed/base/choice.h"

namespace leashed {

using PyChoice = std::pair<std::string, py::dict>;

inline Choice to_choice(const PyChoice& choice) {
  Choice result{choice.first};
  for (const auto& [key, value] : choice.second) {
    const auto name = py::cast<std::string>(key);
    if (py::isinstance<py::tuple>(value)) {
      result.parts.emplace(name, to_choice(py::cast<PyChoice>(value)));
    } else if (py::isinstance<py::array>(value)) {
      result.tables.emplace(name, py::cast<std::vector<double>>(value));
    } else {
      result.settings.emplace(name, py::cast<double>(value));
    }
  }
  return result;
}

}  // namespace leashed
