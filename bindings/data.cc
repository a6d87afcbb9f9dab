#include "data.h"

#include <cmath>

#include "clicks.h"
#include "leashed/columns/sparse_model.h"
#include "sparse.h"

namespace leashed {

Targets targets_of(const GradientSource& source, const py::array& y, std::size_t rows,
                   const std::optional<FloatArray>& weights) {
  Targets targets;
  const std::size_t classes = source.classes();
  targets.width = source.values();
  if (targets.width == 1) {
    require_length(y, rows, "y");
  } else if (y.ndim() != 2 || static_cast<std::size_t>(y.shape(0)) != rows ||
             static_cast<std::size_t>(y.shape(1)) != targets.width) {
    throw py::value_error("y must have shape [" + std::to_string(rows) + ", " +
                          std::to_string(targets.width) + "]");
  }
  if (classes == 0) {
    if (!FloatArray::check_(y)) throw py::type_error("y must be a float32 array");
    targets.values = static_cast<const float*>(y.data());
  } else {
    if (!LabelArray::check_(y)) throw py::type_error("y must be an int32 array");
    targets.labels = static_cast<const std::int32_t*>(y.data());
    for (std::size_t i = 0; i < rows && classes != ModelDescription::kAnyLabel; ++i) {
      const std::int32_t label = targets.labels[i];
      if (label >= 0 && static_cast<std::size_t>(label) < classes) continue;
      throw py::value_error("y[" + std::to_string(i) + "] is " + std::to_string(label) +
                            ", outside 0.." + std::to_string(classes - 1));
    }
  }
  if (!weights) return targets;
  if (!source.takes_weights()) {
    throw py::value_error("weights are not taken by a gradient from outside; leave them out");
  }
  require_length(*weights, rows, "weights");
  targets.weights = weights->data();
  for (std::size_t i = 0; i < rows; ++i) {
    if (std::isfinite(targets.weights[i]) && targets.weights[i] >= 0) continue;
    throw py::value_error("weights[" + std::to_string(i) + "] is " +
                          std::to_string(targets.weights[i]) +
                          "; every weight must be finite and not negative");
  }
  return targets;
}

void require_some(std::size_t size, const char* name) {
  if (size == 0) throw py::value_error(std::string(name) + " must be at least 1, got 0");
}

DatasetView examples_of(const GradientSource& source, const py::object& given) {
  DatasetView view{nullptr, {}, 0, source.features()};
  if (const auto* sparse = dynamic_cast<const SparseModel*>(&source)) {
    if (!py::isinstance<PySparseRows>(given)) {
      throw py::type_error("x must be SparseRows where source is a SparseModel");
    }
    const auto& x = py::cast<const PySparseRows&>(given);
    if (x.features() != source.features()) {
      throw py::value_error("x must have " + std::to_string(source.features()) + " columns");
    }
    view.rows = x.rows();
    view.sparse = x.view_for(*sparse);
  } else if (const std::size_t ids = source.features_of_tables().size(); ids > 0) {
    if (!py::isinstance<PyClickRows>(given)) {
      throw py::type_error("x must be ClickRows where source reads tables");
    }
    const auto& x = py::cast<const PyClickRows&>(given);
    if (x.numbers() != source.features() || x.ids().size() != ids) {
      throw py::value_error("x must have " + std::to_string(source.features()) + " numbers and " +
                            std::to_string(ids) + " features that are ids, got " +
                            std::to_string(x.numbers()) + " and " + std::to_string(x.ids().size()));
    }
    view.rows = x.rows();
    view.x = x.x();
    view.ids = x.ids();
  } else {
    if (!py::isinstance<FloatArray>(given)) {
      throw py::type_error("x must be a float32 array, for sparse rows source a SparseModel");
    }
    const auto x = py::cast<FloatArray>(given);
    if (x.ndim() != 2 || static_cast<std::size_t>(x.shape(1)) != source.features()) {
      throw py::value_error("x must have shape [rows, " + std::to_string(source.features()) + "]");
    }
    view.rows = static_cast<std::size_t>(x.shape(0));
    view.x = x.data();
  }
  if (view.rows == 0) throw py::value_error("x must have at least one row");
  return view;
}

DatasetView view_of(const GradientSource& source, const py::object& x, const py::array& y,
                    const std::optional<FloatArray>& weights) {
  DatasetView view = examples_of(source, x);
  view.targets = targets_of(source, y, view.rows, weights);
  return view;
}

}  // namespace leashed
