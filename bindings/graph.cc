#include "leashed/graph/graph.h"

#include <unordered_map>

#include "choice.h"
#include "click_evaluation.h"
#include "heads.h"
#include "leashed/model/tracked_source.h"
#include "parts.h"

namespace leashed {
namespace {

using PyNode = std::tuple<std::string, py::dict, std::vector<std::size_t>>;
using IdArray = py::array_t<std::uint64_t, py::array::c_style>;
using OffsetArray = py::array_t<std::uint32_t, py::array::c_style>;
// (ids, offsets or None, weights or None) of a feature.
using PyColumn = std::tuple<IdArray, std::optional<OffsetArray>, std::optional<FloatArray>>;

// A batch from arrays: tables are given whole, [rows, dim], and an id is the number of a row.
class ArrayBatch {
 public:
  ArrayBatch(const Graph& graph, const std::optional<FloatArray>& x, const py::array* y,
             const std::vector<PyColumn>& columns, const std::vector<FloatArray>& tables,
             const std::optional<FloatArray>& weights)
      : features_(graph.features_of_tables()), shapes_(graph.tables()) {
    if (columns.size() != features_.size() || tables.size() != shapes_.size()) {
      throw py::value_error("columns must be " + std::to_string(features_.size()) + " and tables " +
                            std::to_string(shapes_.size()) + ", got " +
                            std::to_string(columns.size()) + " and " +
                            std::to_string(tables.size()));
    }
    read_rows(graph, x, columns);
    if (y) view.targets = targets_of(graph, *y, view.size, weights);
    for (std::size_t f = 0; f < columns.size(); ++f) read_column(f, columns[f]);
    distinct_.resize(tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) read_table(t, tables[t]);
    for (const auto& places : places_) place_pointers_.push_back(places.data());
    view.columns = columns_;
    view.tables = tables_;
    view.places = place_pointers_.data();
  }

  BatchView view{nullptr, Targets(), 0};

  // Memory for the rows' gradients, one array [rows, dim] a table.
  void want_gradients() {
    for (TableRows& table : tables_) {
      gradients_.emplace_back(table.count * table.stride);
      table.gradient = gradients_.back().data();
    }
  }
  std::vector<py::array_t<float>> gradients(const std::vector<FloatArray>& given) const {
    std::vector<py::array_t<float>> result;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      py::array_t<float> whole({given[t].shape(0), given[t].shape(1)});
      float* out = whole.mutable_data();
      std::fill_n(out, whole.size(), 0.0f);
      for (std::size_t i = 0; i < tables_[t].count; ++i) {
        std::copy_n(gradients_[t].data() + i * tables_[t].stride, tables_[t].dim,
                    out + distinct_[t].ids[i] * tables_[t].dim);
      }
      result.push_back(std::move(whole));
    }
    return result;
  }

 private:
  struct Distinct {
    std::vector<std::uint64_t> ids;
    std::vector<const float*> values;
  };

  void read_rows(const Graph& graph, const std::optional<FloatArray>& x,
                 const std::vector<PyColumn>& columns) {
    if (x) {
      if (x->ndim() != 2 || static_cast<std::size_t>(x->shape(1)) != graph.features()) {
        throw py::value_error("x must have shape [rows, " + std::to_string(graph.features()) + "]");
      }
      view.size = static_cast<std::size_t>(x->shape(0));
    } else if (graph.features() > 0 || columns.empty()) {
      throw py::value_error("x must be given");
    } else {
      const auto& [ids, offsets, unused] = columns[0];
      if (offsets && offsets->size() == 0) throw py::value_error("columns[0]'s offsets are empty");
      view.size = static_cast<std::size_t>(offsets ? offsets->size() - 1 : ids.size());
    }
    if (view.size == 0) throw py::value_error("x must have at least one row");
    for (std::size_t i = 0; x && i < view.size; ++i) {
      rows_.push_back(x->data() + i * graph.features());
    }
    view.rows = rows_.data();
  }

  void read_column(std::size_t f, const PyColumn& column) {
    const auto& [ids, offsets, weights] = column;
    const std::string name = "columns[" + std::to_string(f) + "]";
    std::size_t entries = view.size;
    if (offsets) {
      const std::uint32_t* o = offsets->data();
      if (static_cast<std::size_t>(offsets->size()) != view.size + 1 || o[0] != 0) {
        throw py::value_error(name + "'s offsets must be " + std::to_string(view.size + 1) +
                              ", from 0");
      }
      for (std::size_t i = 0; i < view.size; ++i) {
        if (o[i + 1] < o[i]) throw py::value_error(name + "'s offsets must not descend");
      }
      entries = o[view.size];
    }
    require_length(ids, entries, (name + "'s ids").c_str());
    if (weights) require_length(*weights, entries, (name + "'s weights").c_str());
    columns_.push_back(
        {ids.data(), offsets ? offsets->data() : nullptr, weights ? weights->data() : nullptr});
    entries_.push_back(entries);
    places_.emplace_back(entries);
  }

  // Finds the distinct ids of all features that read the table, in the order of their appearance.
  void read_table(std::size_t t, const FloatArray& given) {
    const std::size_t dim = shapes_[t].dim;
    if (given.ndim() != 2 || static_cast<std::size_t>(given.shape(1)) != dim) {
      throw py::value_error("tables[" + std::to_string(t) + "] must have shape [rows, " +
                            std::to_string(dim) + "]");
    }
    Distinct& distinct = distinct_[t];
    std::unordered_map<std::uint64_t, std::uint32_t> place_of;
    for (std::size_t f = 0; f < features_.size(); ++f) {
      if (features_[f] != t) continue;
      for (std::size_t e = 0; e < entries_[f]; ++e) {
        const std::uint64_t id = columns_[f].ids[e];
        if (id >= static_cast<std::uint64_t>(given.shape(0))) {
          throw py::value_error("columns[" + std::to_string(f) + "] has id " + std::to_string(id) +
                                ", but table " + shapes_[t].name + " has " +
                                std::to_string(given.shape(0)) + " rows");
        }
        const auto next = static_cast<std::uint32_t>(distinct.ids.size());
        const auto [found, is_new] = place_of.try_emplace(id, next);
        if (is_new) {
          distinct.ids.push_back(id);
          distinct.values.push_back(given.data() + id * dim);
        }
        places_[f][e] = found->second;
      }
    }
    tables_.push_back({distinct.ids.size(), dim, dim, distinct.values.data(), nullptr});
  }

  const std::vector<std::size_t> features_;
  const std::vector<TableShape> shapes_;
  std::vector<const float*> rows_;
  std::vector<IdColumn> columns_;
  std::vector<std::size_t> entries_;
  std::vector<std::vector<std::uint32_t>> places_;
  std::vector<const std::uint32_t*> place_pointers_;
  std::vector<Distinct> distinct_;
  std::vector<TableRows> tables_;
  std::vector<std::vector<float>> gradients_;
};

std::unique_ptr<Graph> make_graph(const std::vector<PyNode>& nodes,
                                  const std::vector<std::pair<std::string, std::size_t>>& tables,
                                  const std::optional<std::string>& isa, const std::string& loss,
                                  double l2) {
  std::vector<Node> list;
  for (const auto& [name, settings, inputs] : nodes) {
    list.push_back({to_choice({name, settings}), inputs});
  }
  std::vector<TableShape> shapes;
  for (const auto& [name, dim] : tables) shapes.push_back({name, dim});
  return std::make_unique<Graph>(list, std::move(shapes), isa ? parse_isa(*isa) : default_isa(),
                                 loss, l2);
}

// (loss, gradient, one array [rows, dim] of row gradients for each table).
py::tuple gradient(const Graph& graph, const FloatArray& theta, const std::optional<FloatArray>& x,
                   const py::array& y, const std::vector<PyColumn>& columns,
                   const std::vector<FloatArray>& tables, const std::optional<FloatArray>& weights,
                   std::uint64_t seed, std::uint64_t place) {
  require_length(theta, graph.dimension(), "theta");
  ArrayBatch batch(graph, x, &y, columns, tables, weights);
  batch.view.drawing = {seed, place};
  batch.want_gradients();
  std::vector<float> result(graph.dimension());
  float loss = 0;
  {
    const py::gil_scoped_release release;
    const std::atomic<bool> never{false};
    const auto workspace = graph.make_workspace();
    loss = graph.gradient(theta.data(), batch.view, result.data(), *workspace, never);
  }
  return py::make_tuple(loss, to_array(std::move(result)), batch.gradients(tables));
}

// Mean loss and accuracy.
std::pair<double, double> evaluate(const Graph& graph, const FloatArray& theta,
                                   const std::optional<FloatArray>& x, const py::array& y,
                                   const std::vector<PyColumn>& columns,
                                   const std::vector<FloatArray>& tables,
                                   const std::optional<FloatArray>& weights) {
  require_length(theta, graph.dimension(), "theta");
  const ArrayBatch batch(graph, x, &y, columns, tables, weights);
  const py::gil_scoped_release release;
  const Evaluation sums = graph.evaluate(theta.data(), batch.view, *graph.make_workspace());
  const auto n = static_cast<double>(sums.rows);
  return {sums.loss_sum / n, static_cast<double>(sums.correct) / n};
}

py::array_t<float> predict_batch(const Graph& graph, const FloatArray& theta,
                                 const std::optional<FloatArray>& x,
                                 const std::vector<PyColumn>& columns,
                                 const std::vector<FloatArray>& tables) {
  require_length(theta, graph.dimension(), "theta");
  const ArrayBatch batch(graph, x, nullptr, columns, tables, std::nullopt);
  py::array_t<float> predictions({batch.view.size, graph.outputs()});
  float* out = predictions.mutable_data();
  const py::gil_scoped_release release;
  graph.predict(theta.data(), batch.view, out, *graph.make_workspace());
  return predictions;
}

// What the graph's statistics are; null: those of what it is given, which it must not have any
// other of.
const float* statistics_of(const Graph& graph, const std::optional<FloatArray>& given) {
  const auto blocks = graph.statistics();
  const std::size_t size = blocks.empty() ? 0 : blocks.back().offset + blocks.back().size;
  if (!given) return nullptr;
  require_length(*given, size, "statistics");
  return given->data();
}

// Mean loss, accuracy, AUC and normalised entropy, of several labels in the mean, of rows of
// clicks, or of numbers alone.
py::tuple evaluate_graph(const Graph& graph, const FloatArray& theta, const py::object& x,
                         const py::array& y, const Tables& tables,
                         const std::optional<FloatArray>& weights,
                         std::optional<std::size_t> threads,
                         const std::optional<FloatArray>& statistics,
                         std::optional<FloatArray> logits) {
  const DatasetView data = view_of(graph, x, y, weights);
  const float* const by = statistics_of(graph, statistics);
  RunningStatistics running;
  if (by) running = {{by, by + statistics->size()}, 1};
  const TrackedSource tracked(graph, 1, std::move(running));
  const GradientSource& source = by ? static_cast<const GradientSource&>(tracked) : graph;
  float* to = nullptr;
  if (logits) {
    if (!graph.gives_logits()) throw py::value_error("logits are of graphs of labels of two");
    require_length(*logits, data.rows * graph.values(), "logits");
    to = logits->mutable_data();
  }
  const Evaluation sum = evaluate_rows(source, theta, data, tables, threads, to);
  const auto n = static_cast<double>(sum.rows);
  return py::make_tuple(sum.loss_sum / n, static_cast<double>(sum.correct) / n,
                        mean_of_known(each(sum.heads, &HeadScore::auc)),
                        mean_of_known(each(sum.heads, &HeadScore::normalised_entropy)));
}

py::array_t<float> predict_graph(const Graph& graph, const FloatArray& theta, const py::object& x,
                                 const Tables& tables,
                                 const std::optional<FloatArray>& statistics) {
  const float* const by = statistics_of(graph, statistics);
  return predict_rows(graph, theta, examples_of(graph, x), tables, graph.outputs(),
                      [&](BatchView batch, float* out, Workspace& workspace) {
                        batch.statistics = by;
                        graph.predict(theta.data(), batch, out, workspace);
                      });
}

}  // namespace

void bind_graph(py::module_& m) {
  py::class_<Graph, GradientSource>(m, "Graph")
      .def(py::init(&make_graph), py::arg("nodes"), py::arg("tables"), py::arg("isa") = py::none(),
           py::arg("loss") = "log_loss", py::arg("l2") = 0.0)
      .def_property_readonly("outputs", &Graph::outputs)
      .def_property_readonly("classes", &Graph::classes)
      .def_property_readonly("values", &Graph::values,
                             "Of 0 classes: how many numbers a row gives.")
      .def_property_readonly("gives_logits", &Graph::gives_logits,
                             "Whether its outputs are logits, each of a label of its own.")
      .def_property_readonly("parameters", &Graph::parameters)
      .def_property_readonly("flops_per_example", &Graph::flops_per_example)
      .def_property_readonly("features_of_tables", &Graph::features_of_tables)
      .def("gradient", gradient, py::arg("theta").noconvert(), py::arg("x").noconvert(),
           py::arg("y").noconvert(), py::arg("columns"), py::arg("tables"),
           py::arg("weights").noconvert() = py::none(), py::arg("seed") = 0, py::arg("place") = 0)
      .def("evaluate", evaluate, py::arg("theta").noconvert(), py::arg("x").noconvert(),
           py::arg("y").noconvert(), py::arg("columns"), py::arg("tables"),
           py::arg("weights").noconvert() = py::none())
      .def("predict", predict_batch, py::arg("theta").noconvert(), py::arg("x").noconvert(),
           py::arg("columns"), py::arg("tables"))
      .def("evaluate_rows", evaluate_graph, py::arg("theta").noconvert(), py::arg("x"),
           py::arg("y").noconvert(), py::arg("tables"), py::arg("weights").noconvert() = py::none(),
           py::arg("threads") = py::none(), py::arg("statistics").noconvert() = py::none(),
           py::arg("logits").noconvert() = py::none())
      .def("predict_rows", predict_graph, py::arg("theta").noconvert(), py::arg("x"),
           py::arg("tables"), py::arg("statistics").noconvert() = py::none());
}

}  // namespace leashed
