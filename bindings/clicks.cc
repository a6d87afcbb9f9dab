#include "clicks.h"

#include <algorithm>
#include <mutex>

#include "leashed/data/click_lines.h"
#include "leashed/data/clicks.h"
#include "leashed/data/histories.h"
#include "parts.h"

namespace leashed {
namespace {

void require_contiguous(const py::array& array, const char* name) {
  if (array.ndim() != 1 || !(array.flags() & py::array::c_style)) {
    throw py::value_error(std::string(name) + " must be one-dimensional and C-contiguous");
  }
}

// What the core relies on; Python has looked at each offset.
IdFeature to_feature(const PyClickRows::Column& column, std::size_t rows) {
  const auto& [ids, offsets, weights] = column;
  if (!offsets) {
    require_length(ids, rows, "ids");
    constexpr py::ssize_t kSize = sizeof(std::uint64_t);
    if (ids.strides(0) < 0 || ids.strides(0) % kSize != 0) {
      throw py::value_error("ids must follow each other in memory");
    }
    return {ids.data(), static_cast<std::size_t>(ids.strides(0) / kSize)};
  }
  require_contiguous(ids, "ids");
  require_contiguous(*offsets, "offsets");
  require_length(*offsets, rows + 1, "offsets");
  if (offsets->at(0) != 0 || offsets->at(static_cast<py::ssize_t>(rows)) != ids.size()) {
    throw py::value_error("offsets must go from 0 to the number of ids");
  }
  IdFeature feature{ids.data(), 1, offsets->data()};
  if (weights) {
    require_contiguous(*weights, "weights");
    require_length(*weights, static_cast<std::size_t>(ids.size()), "weights");
    feature.weights = weights->data();
  }
  return feature;
}

void fill(const ClickGenerator& clicks, bool test, std::uint64_t first, FloatArray x,
          py::array_t<std::uint64_t, py::array::c_style> ids, LabelArray labels, FloatArray hidden,
          std::size_t threads) {
  const auto rows = static_cast<std::size_t>(labels.size());
  require_length(labels, rows, "labels");
  require_length(hidden, rows, "hidden");
  const auto require = [&](const py::array& array, std::size_t columns, const char* name) {
    if (array.ndim() == 2 && static_cast<std::size_t>(array.shape(0)) == rows &&
        static_cast<std::size_t>(array.shape(1)) == columns) {
      return;
    }
    throw py::value_error(std::string(name) + " must have shape [rows, " + std::to_string(columns) +
                          "]");
  };
  require(x, ClickGenerator::kNumbers, "x");
  require(ids, clicks.features(), "ids");
  const ClickGenerator::Rows out{x.mutable_data(), ids.mutable_data(), labels.mutable_data(),
                                 hidden.mutable_data()};
  const auto stream = test ? ClickGenerator::Stream::test : ClickGenerator::Stream::train;
  const py::gil_scoped_release release;
  clicks.fill(stream, first, rows, out, std::max<std::size_t>(threads, 1));
}

py::bytes lines(const ClickGenerator& clicks, bool test, std::uint64_t first, std::size_t rows,
                std::size_t threads) {
  const auto stream = test ? ClickGenerator::Stream::test : ClickGenerator::Stream::train;
  std::string text;
  {
    const py::gil_scoped_release release;
    text = click_lines(clicks, stream, first, rows, std::max<std::size_t>(threads, 1));
  }
  return text;
}

void fill_histories(const HistoryGenerator& histories, bool test, std::uint64_t first,
                    py::array_t<std::uint64_t, py::array::c_style> users,
                    py::array_t<std::uint64_t, py::array::c_style> items,
                    py::array_t<std::uint64_t, py::array::c_style> before,
                    py::array_t<std::int64_t, py::array::c_style> lengths, LabelArray labels,
                    FloatArray hidden, std::size_t threads) {
  const auto rows = static_cast<std::size_t>(labels.size());
  require_length(users, rows, "users");
  require_length(items, rows, "items");
  require_length(lengths, rows, "lengths");
  require_length(hidden, rows, "hidden");
  if (before.ndim() != 2 || static_cast<std::size_t>(before.shape(0)) != rows ||
      static_cast<std::size_t>(before.shape(1)) != histories.longest()) {
    throw py::value_error("before must have shape [rows, longest]");
  }
  const HistoryGenerator::Rows out{users.mutable_data(),  items.mutable_data(),
                                   before.mutable_data(), lengths.mutable_data(),
                                   labels.mutable_data(), hidden.mutable_data()};
  const auto stream = test ? HistoryGenerator::Stream::test : HistoryGenerator::Stream::train;
  const py::gil_scoped_release release;
  histories.fill(stream, first, rows, out, std::max<std::size_t>(threads, 1));
}

// Threads of Python may share them, and none keeps the GIL while it adds.
struct SharedMetrics {
  explicit SharedMetrics(std::size_t kept) : rows(kept) {}

  ScoredRows copy() {
    const py::gil_scoped_release release;
    const std::lock_guard holding(lock);
    return rows;
  }

  ScoredRows rows;
  std::mutex lock;
};

void add(SharedMetrics& shared, const FloatArray& logits, const LabelArray& labels,
         const std::optional<FloatArray>& weights, const std::optional<UserArray>& users) {
  const auto rows = static_cast<std::size_t>(labels.size());
  require_length(labels, rows, "labels");
  require_length(logits, rows, "logits");
  Targets targets(labels.data());
  if (weights) {
    require_length(*weights, rows, "weights");
    targets.weights = weights->data();
  }
  if (users) {
    require_length(*users, rows, "users");
    targets.users = users->data();
  }
  if (shared.rows.knows_users() != users.has_value()) {
    throw py::value_error("users must be given where kept is not 0, and else not");
  }
  const float* const from = logits.data();
  const py::gil_scoped_release release;
  const std::lock_guard holding(shared.lock);
  shared.rows.add({from, rows}, targets);
}

void merge(SharedMetrics& shared, SharedMetrics& other) {
  const ScoredRows others = other.copy();
  if (shared.rows.knows_users() != others.knows_users()) {
    throw py::value_error("both must know users, or none");
  }
  const py::gil_scoped_release release;
  const std::lock_guard holding(shared.lock);
  shared.rows.merge(others);
}

py::dict values(SharedMetrics& shared) {
  ScoredRows rows = shared.copy();
  const Scores scores = [&rows] {
    const py::gil_scoped_release release;
    return rows.scores();
  }();
  return to_dict(scores);
}

}  // namespace

py::dict to_dict(const Scores& s) {
  using namespace pybind11::literals;
  py::dict told("rows"_a = s.rows, "auc"_a = s.auc, "auc_error"_a = s.auc_error,
                "log_loss"_a = s.log_loss, "normalised_entropy"_a = s.normalised_entropy,
                "calibration"_a = s.calibration);
  if (s.user_share > 0) {
    told["gauc"] = s.gauc;
    told["gauc_error"] = s.gauc_error;
    told["users"] = s.users;
    told["user_share"] = s.user_share;
  }
  return told;
}

PyClickRows::PyClickRows(FloatArray x, std::vector<Column> columns,
                         const std::vector<std::optional<std::size_t>>& most,
                         const std::vector<Drawn>& drawn)
    : x_(std::move(x)), columns_(std::move(columns)) {
  if (x_.ndim() != 2) throw py::value_error("x must have shape [rows, numbers]");
  if (!most.empty() && most.size() != columns_.size()) {
    throw py::value_error("most must have one entry for each column");
  }
  for (std::size_t f = 0; f < columns_.size(); ++f) {
    ids_.push_back(to_feature(columns_[f], rows()));
    if (!most.empty() && most[f]) ids_.back().most = *most[f];
  }
  // From the last on, since each takes the place before a column.
  for (auto each = drawn.rbegin(); each != drawn.rend(); ++each) {
    const auto& [before, count, below, log_uniform] = *each;
    if (before > columns_.size() || count == 0 || below == 0) {
      throw py::value_error("what is drawn must be some ids before one of the columns");
    }
    IdFeature feature;
    feature.negatives = {
        count, below,
        log_uniform ? Negatives::Sampling::log_uniform : Negatives::Sampling::uniform};
    ids_.insert(ids_.begin() + static_cast<std::ptrdiff_t>(before), feature);
  }
}

void bind_clicks(py::module_& m) {
  py::class_<PyClickRows>(m, "ClickRows")
      .def(py::init<FloatArray, std::vector<PyClickRows::Column>,
                    const std::vector<std::optional<std::size_t>>&,
                    const std::vector<PyClickRows::Drawn>&>(),
           py::arg("x").noconvert(), py::arg("columns"),
           py::arg("most") = std::vector<std::optional<std::size_t>>(),
           py::arg("drawn") = std::vector<PyClickRows::Drawn>())
      .def_property_readonly("rows", &PyClickRows::rows)
      .def_property_readonly("numbers", &PyClickRows::numbers)
      .def_property_readonly("features", [](const PyClickRows& x) { return x.ids().size(); });

  py::class_<ClickGenerator>(m, "ClickGenerator")
      .def(py::init([](std::uint64_t seed, std::vector<std::uint64_t> cardinalities,
                       double exponent, double drift, double delay, std::uint32_t day) {
             const py::gil_scoped_release release;
             return std::make_unique<ClickGenerator>(
                 ClickGenerator::Settings{seed, std::move(cardinalities), exponent, drift, delay},
                 day);
           }),
           py::arg("seed"), py::arg("cardinalities"), py::arg("exponent"), py::arg("drift"),
           py::arg("delay"), py::arg("day"))
      .def("fill", fill, py::arg("test"), py::arg("first"), py::arg("x").noconvert(),
           py::arg("ids").noconvert(), py::arg("labels").noconvert(), py::arg("hidden").noconvert(),
           py::arg("threads"), "Writes rows first, first + 1, … of the day.")
      .def("lines", lines, py::arg("test"), py::arg("first"), py::arg("rows"), py::arg("threads"),
           "The same rows as lines of Criteo's text; every id must be below 2**32.")
      .def_readonly_static("NUMBERS", &ClickGenerator::kNumbers)
      .def_readonly_static("LARGEST_CARDINALITY", &Zipf::kMost);

  py::class_<HistoryGenerator>(m, "HistoryGenerator")
      .def(py::init([](std::uint64_t seed, std::uint64_t users, std::uint64_t items,
                       std::uint64_t categories, std::size_t longest, double exponent, double drift,
                       std::uint32_t day) {
             const py::gil_scoped_release release;
             return std::make_unique<HistoryGenerator>(
                 HistoryGenerator::Settings{seed, users, items, categories, longest, exponent,
                                            drift},
                 day);
           }),
           py::arg("seed"), py::arg("users"), py::arg("items"), py::arg("categories"),
           py::arg("longest"), py::arg("exponent"), py::arg("drift"), py::arg("day"))
      .def("fill", fill_histories, py::arg("test"), py::arg("first"), py::arg("users").noconvert(),
           py::arg("items").noconvert(), py::arg("before").noconvert(),
           py::arg("lengths").noconvert(), py::arg("labels").noconvert(),
           py::arg("hidden").noconvert(), py::arg("threads"), "Writes rows first, first + 1, ….");

  py::class_<SharedMetrics>(m, "ClickMetrics")
      .def(py::init<std::size_t>(), py::arg("kept"))
      .def("add", add, py::arg("logits").noconvert(), py::arg("labels").noconvert(),
           py::arg("weights").noconvert() = py::none(), py::arg("users").noconvert() = py::none())
      .def("merge", merge, py::arg("other"))
      .def("values", values);
}

}  // namespace leashed
