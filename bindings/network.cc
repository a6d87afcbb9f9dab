#include "leashed/model/network.h"

#include <array>
#include <limits>

#include "arrays.h"
#include "leashed/engine/evaluator.h"
#include "parts.h"
#include "sparse.h"

namespace leashed {
namespace {

// Pointers to the rows of x [n][features].
std::vector<const float*> row_pointers(const FloatArray& x, std::size_t features) {
  if (x.ndim() != 2 || static_cast<std::size_t>(x.shape(1)) != features) {
    throw py::value_error("x must have shape [rows, " + std::to_string(features) + "]");
  }
  std::vector<const float*> rows(static_cast<std::size_t>(x.shape(0)));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = x.data() + i * features;
  return rows;
}

Targets checked_targets(const py::array& y, std::size_t rows, std::size_t classes) {
  const Targets targets = targets_of(y, rows);
  if ((classes == 0) != (targets.labels == nullptr)) {
    throw py::type_error(classes == 0 ? "y must be a float32 array" : "y must be an int32 array");
  }
  if (classes == 0) return targets;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::int32_t label = targets.labels[i];
    if (label < 0 || static_cast<std::size_t>(label) >= classes) {
      throw py::value_error("y[" + std::to_string(i) + "] is " + std::to_string(label) +
                            ", outside 0.." + std::to_string(classes - 1));
    }
  }
  return targets;
}

// (loss, gradient) of the mean loss over a batch; for tests and for loops of the user's own.
std::pair<float, py::array_t<float>> gradient(const Network& network, const FloatArray& theta,
                                              const FloatArray& x, const py::array& y) {
  require_length(theta, network.dimension(), "theta");
  const auto rows = row_pointers(x, network.features());
  const Targets targets = checked_targets(y, rows.size(), network.classes());
  std::vector<float> result(network.dimension());
  const std::atomic<bool> never{false};
  float loss = 0;
  {
    const py::gil_scoped_release release;
    const auto workspace = network.make_workspace();
    loss = network.gradient(theta.data(), {rows.data(), targets, rows.size()}, result.data(),
                            *workspace, never);
  }
  return {loss, to_array(std::move(result))};
}

std::pair<double, double> evaluate(const Network& network, const FloatArray& theta,
                                   const FloatArray& x, const py::array& y) {
  require_length(theta, network.dimension(), "theta");
  const auto rows = row_pointers(x, network.features());
  const Targets targets = checked_targets(y, rows.size(), network.classes());
  const py::gil_scoped_release release;
  Evaluator evaluator(network, std::numeric_limits<std::size_t>::max(), [] {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return true;
  });
  const DatasetView data{x.data(), targets, rows.size(), network.features()};
  const Evaluation sum = evaluator(theta.data(), data, evaluator.threads()).value();
  const auto n = static_cast<double>(sum.rows);
  return {sum.loss_sum / n, static_cast<double>(sum.correct) / n};
}

py::array_t<float> predict(const Network& network, const FloatArray& theta, const FloatArray& x) {
  require_length(theta, network.dimension(), "theta");
  const auto rows = row_pointers(x, network.features());
  py::array_t<float> predictions({rows.size(), network.outputs()});
  float* out = predictions.mutable_data();
  const py::gil_scoped_release release;
  const auto workspace = network.make_workspace();
  network.predict(theta.data(), rows.data(), rows.size(), out, *workspace);
  return predictions;
}

}  // namespace

void bind_network(py::module_& m) {
  py::class_<Dense>(m, "Dense")
      .def(py::init<std::size_t, bool>(), py::arg("outputs"), py::arg("trains_bias") = true);
  py::class_<Conv2d>(m, "Conv2d")
      .def(py::init<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>(),
           py::arg("filters"), py::arg("kernel_h"), py::arg("kernel_w"), py::arg("stride"),
           py::arg("padding"));
  py::class_<MaxPool>(m, "MaxPool")
      .def(py::init<std::size_t, std::size_t>(), py::arg("size"), py::arg("stride"));
  py::class_<Relu>(m, "Relu").def(py::init<>());

  py::class_<ParameterBlock>(m, "ParameterBlock")
      .def_readonly("name", &ParameterBlock::name)
      .def_readonly("offset", &ParameterBlock::offset)
      .def_readonly("shape", &ParameterBlock::shape)
      .def_readonly("fan_in", &ParameterBlock::fan_in)
      .def_readonly("fan_out", &ParameterBlock::fan_out);

  py::class_<GradientSource>(m, "GradientSource")
      .def_property_readonly("dimension", &GradientSource::dimension)
      .def_property_readonly("features", &GradientSource::features);

  py::class_<Network, GradientSource>(m, "Network")
      .def(py::init([](std::array<std::size_t, 3> input, std::vector<Layer> layers,
                       const std::optional<std::string>& isa, const std::string& loss, double l2) {
             return std::make_unique<Network>(
                 Shape{input[0], input[1], input[2]}, std::move(layers),
                 isa ? parse_isa(*isa) : default_isa(), parse_head(loss), l2);
           }),
           py::arg("input"), py::arg("layers"), py::arg("isa") = py::none(),
           py::arg("loss") = "softmax", py::arg("l2") = 0.0)
      .def_property_readonly("outputs", &Network::outputs)
      .def_property_readonly("classes", &Network::classes)
      .def_property_readonly("parameters", &Network::parameters)
      .def_property_readonly("flops_per_example", &Network::flops_per_example)
      .def("gradient", gradient, py::arg("theta").noconvert(), py::arg("x").noconvert(),
           py::arg("y").noconvert())
      .def("evaluate", evaluate, py::arg("theta").noconvert(), py::arg("x").noconvert(),
           py::arg("y").noconvert())
      .def("predict", predict, py::arg("theta").noconvert(), py::arg("x").noconvert());
}

}  // namespace leashed
