// Gradients from outside: a native function by its address, or any Python callable.
#include "leashed/model/external.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "click_evaluation.h"
#include "leashed/model/external_rows.h"
#include "leashed/update/kernels.h"
#include "parts.h"
#include "row_arrays.h"

namespace leashed {
namespace {

// What `out` holds before a call, to tell what the callable has not written: a NaN of our own.
constexpr std::uint32_t kUnwritten = 0x7fedbabe;

py::array floats(py::ssize_t rows, py::ssize_t columns = -1) {
  if (columns < 0) return py::array_t<float>(rows);
  return py::array_t<float>({rows, columns});
}

// f(theta, x, y, out) → mean loss, and optionally loss(theta, x, y) → mean loss; where the model
// reads tables f(theta, x, y, rows, out), loss(theta, x, y, rows), and optionally
// logits(theta, x, rows) → [batch]. What they are given are arrays of their own, which they may
// keep: memory serves the next call only where nobody refers to it any more.
class PythonSource final : public ExternalModel {
 public:
  PythonSource(py::object gradient, py::object loss, py::object logits, ExternalShape shape)
      : ExternalModel(std::move(shape), static_cast<bool>(logits)),
        gradient_(std::move(gradient)),
        loss_(std::move(loss)),
        logits_(std::move(logits)) {}

  std::unique_ptr<Workspace> make_workspace() const override { return std::make_unique<Scratch>(); }

  // A Python thread state that lasts, so that calls need not make one each.
  std::shared_ptr<void> attach() const override {
    if (PyGILState_GetThisThreadState()) return nullptr;
    struct Attached {
      PyGILState_STATE state = PyGILState_Ensure();
      PyThreadState* saved = PyEval_SaveThread();
      ~Attached() {
        PyEval_RestoreThread(saved);
        PyGILState_Release(state);
      }
    };
    return std::make_shared<Attached>();
  }

  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>&) const override {
    auto& scratch = static_cast<Scratch&>(workspace);
    const float loss = mean_loss(gradient_, true, theta, batch, scratch);
    std::copy_n(scratch.out_data, dimension(), gradient);
    if (reads_tables()) {
      add_row_gradients(scratch.rows.gradients().data(), batch);
      if (!all_finite(scratch.rows.gradients())) return kNaN;
    }
    if (all_finite({gradient, dimension()})) return loss;
    for (std::size_t i = 0; i < dimension(); ++i) {
      if (std::bit_cast<std::uint32_t>(gradient[i]) == kUnwritten) {
        throw std::invalid_argument("gradient has not written out[" + std::to_string(i) +
                                    "]; it must fill the array it is given, as in out[:] = g");
      }
    }
    return kNaN;
  }

  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override {
    auto& scratch = static_cast<Scratch&>(workspace);
    const float mean = loss_ ? mean_loss(loss_, false, theta, batch, scratch)
                             : mean_loss(gradient_, true, theta, batch, scratch);
    if (batch.logits) logits(theta, batch, batch.logits, workspace);
    return {static_cast<double>(mean) * static_cast<double>(batch.size), 0, batch.size};
  }

  void logits(const float* theta, const BatchView& batch, float* out,
              Workspace& workspace) const override {
    auto& s = static_cast<Scratch&>(workspace);
    fill(theta, batch, s);
    const py::gil_scoped_acquire acquire;
    {
      const py::object result = logits_(s.theta, s.x, s.rows.show(shape().tables, batch.size));
      const auto n = static_cast<py::ssize_t>(batch.size);
      const auto given = py::array::ensure(result);
      if (!given || !std::strchr("fiub", given.dtype().kind())) {
        throw py::type_error(
            "logits must return an array of numbers, one for each example; it "
            "returned " +
            kind_of(result));
      }
      if (given.ndim() != 1 || given.size() != n) {
        throw py::value_error("logits must return one number for each example, shape (" +
                              std::to_string(n) + ",); it returned shape " +
                              std::string(py::str(given.attr("shape"))));
      }
      std::copy_n(Floats(given).data(), n, out);
    }
    renew(s, batch.size);
  }

 private:
  struct Scratch final : Workspace {
    ~Scratch() override {
      const py::gil_scoped_acquire acquire;
      theta = x = y = out = py::object();
      rows.release();
    }
    py::object theta, x, y, out;  // arrays, once a batch has come
    RowArrays rows;
    // Their memory, written without the GIL.
    float* theta_data = nullptr;
    float* x_data = nullptr;
    void* y_data = nullptr;
    float* out_data = nullptr;
    std::size_t batch = 0;
  };

  using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();  // stops the run

  static bool all_finite(std::span<const float> values) {
    return std::isfinite(update_kernels().sum_of_squares(
        values.data(), std::numeric_limits<float>::infinity(), 0, values.size()));
  }
  static std::string kind_of(const py::object& object) {
    return std::string(py::str(py::type::handle_of(object).attr("__name__")));
  }
  bool reads_tables() const { return !shape().tables.empty(); }

  // With the GIL: arrays for the next call, that nobody else refers to.
  void renew(Scratch& s, std::size_t batch) const {
    const auto stale = [](const py::object& a) { return !a || a.ref_count() != 1; };
    const auto n = static_cast<py::ssize_t>(batch);
    const bool resized = s.batch != batch;
    const auto d = static_cast<py::ssize_t>(dimension());
    if (stale(s.theta)) s.theta_data = keep<float>(s.theta, floats(d), true);
    if (stale(s.out)) s.out_data = keep<float>(s.out, floats(d), false);
    if (resized || stale(s.x)) {
      s.x_data = keep<float>(s.x, floats(n, static_cast<py::ssize_t>(features())), true);
    }
    if (resized || stale(s.y)) {
      s.y_data = keep<void>(s.y, shape().targets ? floats(n) : py::array_t<std::int32_t>(n), true);
    }
    s.batch = batch;
    if (reads_tables()) s.rows.renew();
  }
  template <class T>
  static T* keep(py::object& kept, py::array array, bool read_only) {
    auto* data = static_cast<T*>(array.mutable_data());
    if (read_only) make_read_only(array);
    kept = std::move(array);
    return data;
  }

  // Everything that a call reads, but y.
  void fill(const float* theta, const BatchView& batch, Scratch& s) const {
    if (reads_tables()) s.rows.measure(batch);
    if (s.batch != batch.size || (reads_tables() && !s.rows.has_room())) {
      const py::gil_scoped_acquire acquire;
      renew(s, batch.size);
    }
    update_kernels().copy_racy(s.theta_data, theta, dimension());  // Hogwild's may change meanwhile
    for (std::size_t i = 0; i < batch.size; ++i) {
      std::copy_n(batch.rows[i], features(), s.x_data + i * features());
    }
    if (reads_tables()) s.rows.fill(batch, shape().features_of_tables);
  }

  float mean_loss(const py::object& f, bool with_out, const float* theta, const BatchView& batch,
                  Scratch& s) const {
    fill(theta, batch, s);
    if (shape().targets) {
      std::copy_n(batch.targets.values, batch.size, static_cast<float*>(s.y_data));
    } else {
      std::copy_n(batch.targets.labels, batch.size, static_cast<std::int32_t*>(s.y_data));
    }
    if (with_out) std::fill_n(s.out_data, dimension(), std::bit_cast<float>(kUnwritten));

    const py::gil_scoped_acquire acquire;
    double loss = 0;
    {
      const py::object result = call(f, with_out, batch.size, s);
      loss = PyFloat_AsDouble(result.ptr());
      if (loss == -1 && PyErr_Occurred()) {
        py::raise_from(
            PyExc_TypeError,
            (std::string(with_out ? "gradient" : "loss") +
             " must return the mean loss of the batch, a number; it returned " + kind_of(result))
                .c_str());
        throw py::error_already_set();
      }
    }
    // What was written is read after this without the GIL; where it was kept, what it was stays.
    if (with_out) {
      if (s.out.ref_count() != 1) kept_out(s);
      if (reads_tables()) s.rows.leave_gradients();
    }
    renew(s, batch.size);
    return static_cast<float>(loss);
  }

  py::object call(const py::object& f, bool with_out, std::size_t batch, const Scratch& s) const {
    if (!reads_tables()) return with_out ? f(s.theta, s.x, s.y, s.out) : f(s.theta, s.x, s.y);
    const py::object rows = s.rows.show(shape().tables, batch);
    return with_out ? f(s.theta, s.x, s.y, rows, s.out) : f(s.theta, s.x, s.y, rows);
  }

  // The callable kept `out`: the engine reads a copy, lest it be written to meanwhile.
  void kept_out(Scratch& s) const {
    py::array copy = floats(static_cast<py::ssize_t>(dimension()));
    std::copy_n(s.out_data, dimension(), static_cast<float*>(copy.mutable_data()));
    s.out_data = keep<float>(s.out, std::move(copy), false);
  }

  const py::object gradient_, loss_, logits_;
};

using PyTable = std::pair<std::string, std::size_t>;  // name and dim

ExternalShape to_shape(std::size_t dimension, std::size_t features, bool targets,
                       std::vector<std::size_t> variable_ends,
                       const std::vector<PyTable>& tables = {},
                       std::vector<std::size_t> features_of_tables = {}) {
  require_some(dimension, "dimension");
  if (features_of_tables.empty()) require_some(features, "features");
  ExternalShape shape{dimension, features, targets, std::move(variable_ends)};
  for (const auto& [name, dim] : tables) shape.tables.push_back({name, dim});
  shape.features_of_tables = std::move(features_of_tables);
  return shape;
}

ExternalFunction function_at(std::uintptr_t address) {
  return reinterpret_cast<ExternalFunction>(address);
}
void* pointer_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

using PyFunction = std::pair<std::uintptr_t, std::uintptr_t>;  // address, user_data
ExternalRowsSource::Function to_function(const PyFunction& f) {
  return {reinterpret_cast<ExternalRowsFunction>(f.first), pointer_at(f.second)};
}

}  // namespace

void bind_external(py::module_& m) {
  py::class_<ExternalModel, GradientSource>(m, "ExternalModel")
      .def(
          "logits",
          [](const ExternalModel& source, const FloatArray& theta, const PyClickRows& x,
             const Tables& tables) {
            if (!source.gives_logits()) throw py::value_error("source gives no logits");
            return predict_rows(source, theta, {x.x(), {}, x.rows(), x.numbers(), {}, x.ids()},
                                tables, 1,
                                [&](const BatchView& batch, float* out, Workspace& workspace) {
                                  source.logits(theta.data(), batch, out, workspace);
                                });
          },
          py::arg("theta").noconvert(), py::arg("x"), py::arg("tables"), "[rows, 1].");

  py::class_<ExternalSource, ExternalModel>(
      m, "ExternalSource", "Gradients from a native function, by the contract of leashed.h.")
      .def(py::init([](std::uintptr_t gradient, std::uintptr_t gradient_data, std::uintptr_t loss,
                       std::uintptr_t loss_data, std::size_t dimension, std::size_t features,
                       std::size_t workspace_bytes, bool targets,
                       std::vector<std::size_t> variable_ends) {
             return std::make_unique<ExternalSource>(
                 to_shape(dimension, features, targets, std::move(variable_ends)),
                 ExternalSource::Parts{function_at(gradient), function_at(loss),
                                       pointer_at(gradient_data), pointer_at(loss_data),
                                       workspace_bytes});
           }),
           py::kw_only(), py::arg("gradient"), py::arg("gradient_data"), py::arg("loss"),
           py::arg("loss_data"), py::arg("dimension"), py::arg("features"),
           py::arg("workspace_bytes"), py::arg("targets"), py::arg("variable_ends"));

  py::class_<ExternalRowsSource, ExternalModel>(
      m, "ExternalRowsSource",
      "Gradients from a native function that reads rows of tables, by the contract of leashed.h.")
      .def(py::init([](const PyFunction& gradient, const PyFunction& loss, const PyFunction& logits,
                       std::size_t dimension, std::size_t features, std::size_t workspace_bytes,
                       std::vector<std::size_t> variable_ends, const std::vector<PyTable>& tables,
                       std::vector<std::size_t> features_of_tables) {
             return std::make_unique<ExternalRowsSource>(
                 to_shape(dimension, features, false, std::move(variable_ends), tables,
                          std::move(features_of_tables)),
                 ExternalRowsSource::Parts{to_function(gradient), to_function(loss),
                                           to_function(logits), workspace_bytes});
           }),
           py::kw_only(), py::arg("gradient"), py::arg("loss"), py::arg("logits"),
           py::arg("dimension"), py::arg("features"), py::arg("workspace_bytes"),
           py::arg("variable_ends"), py::arg("tables"), py::arg("features_of_tables"));

  py::class_<PythonSource, ExternalModel>(m, "PythonSource", "Gradients from a Python callable.")
      .def(py::init([](py::object gradient, const py::object& loss, std::size_t dimension,
                       std::size_t features, bool targets, std::vector<std::size_t> variable_ends,
                       const py::object& logits, const std::vector<PyTable>& tables,
                       std::vector<std::size_t> features_of_tables) {
             const auto given = [](const py::object& f) { return f.is_none() ? py::object() : f; };
             return std::make_unique<PythonSource>(
                 std::move(gradient), given(loss), given(logits),
                 to_shape(dimension, features, targets, std::move(variable_ends), tables,
                          std::move(features_of_tables)));
           }),
           py::kw_only(), py::arg("gradient"), py::arg("loss"), py::arg("dimension"),
           py::arg("features"), py::arg("targets"), py::arg("variable_ends"),
           py::arg("logits") = py::none(), py::arg("tables") = std::vector<PyTable>(),
           py::arg("features_of_tables") = std::vector<std::size_t>());

  m.def(
      "mean_loss",
      [](const GradientSource& source, const FloatArray& theta, const py::object& x,
         const py::array& y, const Tables& tables) {
        const DatasetView data = view_of(source, x, y);
        if (source.tables().empty()) return means(source, theta, data).first;
        const Evaluation sum = evaluate_rows(source, theta, data, tables);
        return sum.loss_sum / static_cast<double>(sum.rows);
      },
      py::arg("source"), py::arg("theta").noconvert(), py::arg("x"), py::arg("y"),
      py::arg("tables") = Tables(), "The mean loss over all rows.");
}

}  // namespace leashed
