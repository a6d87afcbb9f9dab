// Running statistics as Python has them.
#pragma once

#include <tuple>
#include <utility>

#include "arrays.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

// (values, empty where there was no batch; batches; how often one counted as the least).
using PyRunning = std::tuple<py::array_t<float>, std::uint64_t, std::uint64_t>;

inline PyRunning to_running(RunningStatistics all) {
  return {to_array(std::move(all.values)), all.batches, all.least};
}

}  // namespace leashed
