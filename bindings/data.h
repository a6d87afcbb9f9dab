// Data from Python, checked: NumPy's arrays, sparse rows, or rows of numbers and ids.
#pragma once

#include <optional>

#include "arrays.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

// Pointers to a float32 array x [rows][features], to SparseRows or to ClickRows, whichever the
// source takes, to what its rows are to give and to their weights. Throws where there is no row, or
// something that the core relies on does not hold.
DatasetView view_of(const GradientSource& source, const py::object& x, const py::array& y,
                    const std::optional<FloatArray>& weights = std::nullopt);

// What `rows` of them are to give, and their weights.
Targets targets_of(const GradientSource& source, const py::array& y, std::size_t rows,
                   const std::optional<FloatArray>& weights);

// Such rows without what they are to give.
DatasetView examples_of(const GradientSource& source, const py::object& x);

// ValueError where a size is 0.
void require_some(std::size_t size, const char* name);

}  // namespace leashed
