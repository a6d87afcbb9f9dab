#include "sparse.h"

#include "data.h"
#include "evaluate.h"
#include "leashed/columns/factorisation_machine.h"
#include "leashed/columns/field_aware_machine.h"
#include "leashed/columns/sparse_linear.h"
#include "leashed/columns/sparse_network.h"
#include "leashed/network/network.h"
#include "parts.h"

namespace leashed {

PySparseRows::PySparseRows(py::array_t<std::int64_t, py::array::c_style> indptr, LabelArray indices,
                           FloatArray data, std::size_t features)
    : indptr_(std::move(indptr)),
      indices_(std::move(indices)),
      data_(std::move(data)),
      features_(features) {
  if (indptr_.ndim() != 1 || indptr_.size() == 0) {
    throw py::value_error("indptr must be one-dimensional, with at least one entry");
  }
  const auto entries = static_cast<std::size_t>(data_.size());
  require_length(indices_, entries, "indices");
  require_length(data_, entries, "data");
  const SparseRows given = view();
  const std::size_t n = rows();
  const py::gil_scoped_release release;
  check_rows(given, n, features_, entries);
}

SparseRows PySparseRows::view_for(const SparseModel& model) const {
  if (!model.takes_distinct_columns()) return view();
  const SparseRows given = view();
  const std::size_t n = rows();
  const py::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  if (!distinct_) distinct_ = std::make_unique<const DistinctColumns>(given, n, features_);
  return distinct_->view();
}

std::shared_ptr<const OrderedRows> PySparseRows::ordered(const SparseRows& view,
                                                         std::uint64_t seed) const {
  const std::size_t n = rows();
  const py::gil_scoped_release release;
  const std::lock_guard lock(mutex_);
  if (!ordered_ || seed_ != seed || ordered_from_ != view.columns) {
    ordered_ = std::make_shared<const OrderedRows>(view, n, features_, seed);
    seed_ = seed;
    ordered_from_ = view.columns;
  }
  return ordered_;
}

namespace {

py::array_t<float> predict_sparse(const SparseModel& source, const FloatArray& theta,
                                  const PySparseRows& x) {
  require_length(theta, source.dimension(), "theta");
  if (x.features() != source.features()) {
    throw py::value_error("x must have " + std::to_string(source.features()) + " columns");
  }
  py::array_t<float> predictions({x.rows(), source.outputs()});
  float* out = predictions.mutable_data();
  const SparseRows view = x.view_for(source);
  const py::gil_scoped_release release;
  in_parts(x.rows(), [&](std::size_t first, std::size_t count) {
    source.predict(theta.data(), view.from(first), count, out + first * source.outputs());
  });
  return predictions;
}

// Of each place in the vector that a training has, the one in the model's; and where its variables
// end there.
std::pair<py::array_t<std::int64_t>, std::vector<std::size_t>> training_order(
    const SparseModel& source, const PySparseRows* x, std::uint64_t seed) {
  const auto rows = x ? x->ordered(x->view_for(source), seed)
                      : std::make_shared<const OrderedRows>(source.features());
  const std::size_t d = source.dimension();
  // (Floats have no room for a place.)
  constexpr std::int64_t kLow = 1 << 16;
  std::vector<float> low(d), high(d);
  for (std::size_t i = 0; i < d; ++i) {
    const auto place = static_cast<std::int64_t>(i);
    low[i] = static_cast<float>(place % kLow);
    high[i] = static_cast<float>(place / kLow);
  }
  low = rows->ordered(low.data(), source.shape());
  high = rows->ordered(high.data(), source.shape());
  py::array_t<std::int64_t> order(static_cast<py::ssize_t>(d));
  for (std::size_t i = 0; i < d; ++i) {
    order.mutable_data()[i] =
        static_cast<std::int64_t>(high[i]) * kLow + static_cast<std::int64_t>(low[i]);
  }
  return {std::move(order), source.for_ordered(*rows)->block_ends()};
}

}  // namespace

void bind_sparse(py::module_& m) {
  py::class_<PySparseRows>(m, "SparseRows")
      .def(py::init<py::array_t<std::int64_t, py::array::c_style>, LabelArray, FloatArray,
                    std::size_t>(),
           py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
           py::arg("data").noconvert(), py::arg("features"))
      .def_property_readonly("rows", &PySparseRows::rows)
      .def_property_readonly("features", &PySparseRows::features)
      .def(
          "prepare", [](const PySparseRows& x, std::uint64_t seed) { x.ordered(seed); },
          py::arg("seed"), "Makes the copy that training with this seed works on.");

  py::class_<SparseModel, GradientSource>(m, "SparseModel")
      .def(
          "gradient",
          [](const SparseModel& source, const FloatArray& theta, const PySparseRows& x,
             const py::array& y, const std::optional<FloatArray>& weights) {
            return gradient_of(source, theta, view_of(source, py::cast(&x), y, weights));
          },
          py::arg("theta").noconvert(), py::arg("x"), py::arg("y").noconvert(),
          py::arg("weights").noconvert() = py::none())
      .def(
          "evaluate",
          [](const SparseModel& source, const FloatArray& theta, const PySparseRows& x,
             const py::array& y, const std::optional<FloatArray>& weights,
             std::optional<std::size_t> threads) {
            return means(source, theta, view_of(source, py::cast(&x), y, weights), threads);
          },
          py::arg("theta").noconvert(), py::arg("x"), py::arg("y").noconvert(),
          py::arg("weights").noconvert() = py::none(), py::arg("threads") = py::none())
      .def("predict", predict_sparse, py::arg("theta").noconvert(), py::arg("x"))
      .def("training_order", training_order, py::arg("x"), py::arg("seed"),
           "A training on these rows with that seed, or on a stream (None), has parameters in "
           "another order: of each place the one in the model's, int64 [d], and where its "
           "variables end.");

  py::class_<SparseLinear, SparseModel>(m, "SparseLinear")
      .def(py::init([](std::size_t features, std::size_t outputs, const std::string& loss,
                       double l2, const std::optional<std::string>& isa, bool trains_bias) {
             return std::make_unique<SparseLinear>(features, outputs, loss, l2, trains_bias, false,
                                                   isa ? parse_isa(*isa) : default_isa());
           }),
           py::arg("features"), py::arg("outputs"), py::arg("loss"), py::arg("l2") = 0.0,
           py::arg("isa") = py::none(), py::arg("trains_bias") = true);
  py::class_<SparseNetwork, SparseModel>(m, "SparseNetwork")
      .def(py::init([](const Network& network, const std::string& loss, double l2,
                       const std::optional<std::string>& isa) {
             const std::vector<DenseStage> stages = network.dense_stages();
             if (stages.size() < 2 || stages.back().activation) {
               throw py::value_error(
                   "network must be of at least two dense layers, the last without an activation");
             }
             return std::make_unique<SparseNetwork>(stages, loss, l2, false,
                                                    isa ? parse_isa(*isa) : default_isa());
           }),
           py::arg("network"), py::arg("loss"), py::arg("l2") = 0.0, py::arg("isa") = py::none());
  py::class_<FactorisationMachine, SparseModel>(m, "FactorisationMachine")
      .def(py::init([](std::size_t features, std::size_t k, const std::string& loss, double l2,
                       const std::optional<std::string>& isa) {
             return std::make_unique<FactorisationMachine>(features, k, loss, l2, false,
                                                           isa ? parse_isa(*isa) : default_isa());
           }),
           py::arg("features"), py::arg("k"), py::arg("loss"), py::arg("l2") = 0.0,
           py::arg("isa") = py::none());

  py::class_<FieldAwareMachine, SparseModel>(m, "FieldAwareMachine")
      .def(py::init([](const py::array_t<std::uint16_t, py::array::c_style>& fields, std::size_t k,
                       const std::string& loss, double l2, const std::optional<std::string>& isa) {
             return std::make_unique<FieldAwareMachine>(
                 std::vector<std::uint16_t>(fields.data(), fields.data() + fields.size()), k, loss,
                 l2, false, isa ? parse_isa(*isa) : default_isa());
           }),
           py::arg("fields").noconvert(), py::arg("k"), py::arg("loss"), py::arg("l2") = 0.0,
           py::arg("isa") = py::none());
}

}  // namespace leashed
