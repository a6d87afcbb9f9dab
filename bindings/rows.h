// What became of rows' gradients, for Python.
#pragma once

#include "arrays.h"
#include "leashed/row_store/row_store.h"

namespace leashed {

inline py::dict to_dict(const RowPublication& p) {
  using namespace pybind11::literals;
  std::size_t used = p.octaves.size();
  while (used > 0 && p.octaves[used - 1] == 0) --used;
  return py::dict("applied"_a = p.applied, "folded"_a = p.folded, "late"_a = p.late,
                  "excluded"_a = p.excluded, "unadmitted"_a = p.unadmitted,
                  "deferred"_a = p.deferred, "refused"_a = p.refused, "staleness"_a = p.staleness,
                  "stalest"_a = p.stalest,
                  "octaves"_a = to_array(std::vector(p.octaves.begin(), p.octaves.begin() + used)));
}

}  // namespace leashed
