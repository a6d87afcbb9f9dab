#include "leashed/network/network.h"

#include <array>

#include "choice.h"
#include "data.h"
#include "evaluate.h"
#include "leashed/model/loss.h"
#include "parts.h"

namespace leashed {
namespace {

py::array_t<float> predict_network(const Network& network, const FloatArray& theta,
                                   const FloatArray& x) {
  require_length(theta, network.dimension(), "theta");
  if (x.ndim() != 2 || static_cast<std::size_t>(x.shape(1)) != network.features()) {
    throw py::value_error("x must have shape [rows, " + std::to_string(network.features()) + "]");
  }
  std::vector<const float*> rows(static_cast<std::size_t>(x.shape(0)));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = x.data() + i * network.features();
  py::array_t<float> predictions({rows.size(), network.outputs()});
  float* out = predictions.mutable_data();
  const py::gil_scoped_release release;
  const auto workspace = network.make_workspace();
  in_parts(rows.size(), [&](std::size_t first, std::size_t count) {
    network.predict(theta.data(), rows.data() + first, count, out + first * network.outputs(),
                    *workspace);
  });
  return predictions;
}

}  // namespace

void bind_network(py::module_& m) {
  m.def("losses", loss_names, "Names of the losses there are.");
  py::class_<ParameterBlock>(m, "ParameterBlock")
      .def_readonly("name", &ParameterBlock::name)
      .def_readonly("offset", &ParameterBlock::offset)
      .def_readonly("shape", &ParameterBlock::shape)
      .def_readonly("fan_in", &ParameterBlock::fan_in)
      .def_readonly("fan_out", &ParameterBlock::fan_out);

  py::class_<StatisticBlock>(m, "StatisticBlock")
      .def_readonly("name", &StatisticBlock::name)
      .def_readonly("offset", &StatisticBlock::offset)
      .def_readonly("size", &StatisticBlock::size);

  py::class_<GradientSource>(m, "GradientSource")
      .def_property_readonly("dimension", &GradientSource::dimension)
      .def_property_readonly("features", &GradientSource::features)
      .def_property_readonly(
          "features_of_tables",
          [](const GradientSource& source) {
            const auto found = source.features_of_tables();
            return std::vector<std::size_t>(found.begin(), found.end());
          },
          "Of each feature of ids the table that it reads, by its place among the source's.")
      .def_property_readonly("block_ends", &GradientSource::block_ends,
                             "Where the parameters' variables end.")
      .def_property_readonly("statistics", &GradientSource::statistics);

  py::class_<Network, GradientSource>(m, "Network")
      .def(py::init([](std::array<std::size_t, 3> input, const std::vector<PyChoice>& layers,
                       const std::optional<std::string>& isa, const std::string& loss, double l2) {
             std::vector<Layer> chosen;
             for (const PyChoice& layer : layers) chosen.push_back(to_choice(layer));
             return std::make_unique<Network>(Shape{input[0], input[1], input[2]}, chosen,
                                              isa ? parse_isa(*isa) : default_isa(), loss, l2);
           }),
           py::arg("input"), py::arg("layers"), py::arg("isa") = py::none(),
           py::arg("loss") = "softmax", py::arg("l2") = 0.0)
      .def_property_readonly("outputs", &Network::outputs)
      .def_property_readonly("classes", &Network::classes)
      .def_property_readonly("values", &Network::values,
                             "Of 0 classes: how many numbers a row gives.")
      .def_property_readonly("gives_logits", &Network::gives_logits,
                             "Whether its outputs are logits, each of a label of its own.")
      .def_property_readonly("parameters", &Network::parameters)
      .def_property_readonly("flops_per_example", &Network::flops_per_example)
      .def(
          "gradient",
          [](const Network& network, const FloatArray& theta, const FloatArray& x,
             const py::array& y, const std::optional<FloatArray>& weights) {
            return gradient_of(network, theta, view_of(network, x, y, weights));
          },
          py::arg("theta").noconvert(), py::arg("x").noconvert(), py::arg("y").noconvert(),
          py::arg("weights").noconvert() = py::none())
      .def(
          "evaluate",
          [](const Network& network, const FloatArray& theta, const FloatArray& x,
             const py::array& y, const std::optional<FloatArray>& weights,
             std::optional<std::size_t> threads) {
            return means(network, theta, view_of(network, x, y, weights), threads);
          },
          py::arg("theta").noconvert(), py::arg("x").noconvert(), py::arg("y").noconvert(),
          py::arg("weights").noconvert() = py::none(), py::arg("threads") = py::none())
      .def("predict", predict_network, py::arg("theta").noconvert(), py::arg("x").noconvert());
}

}  // namespace leashed
