// Gradients from outside: a native function by its address, or any Python callable.
#include "leashed/model/external.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "data.h"
#include "evaluate.h"
#include "leashed/update/kernels.h"
#include "parts.h"
#include "read.h"

namespace leashed {
namespace {

// What `out` holds before a call, to tell what the callable has not written: a NaN of our own.
constexpr std::uint32_t kUnwritten = 0x7fedbabe;

py::array floats(py::ssize_t rows, py::ssize_t columns = -1) {
  if (columns < 0) return py::array_t<float>(rows);
  return py::array_t<float>({rows, columns});
}

// f(theta, x, y, out) → mean loss, and optionally loss(theta, x, y) → mean loss. What they are
// given are arrays of their own, which they may keep: memory serves the next call only where nobody
// refers to it any more.
class PythonSource final : public GradientSource {
 public:
  PythonSource(py::object gradient, py::object loss, std::size_t dimension, std::size_t features,
               bool targets, std::vector<std::size_t> variable_ends)
      : gradient_(std::move(gradient)),
        loss_(std::move(loss)),
        dimension_(dimension),
        features_(features),
        targets_(targets),
        variable_ends_(std::move(variable_ends)) {
    require_some(dimension_, "dimension");
    require_some(features_, "features");
  }

  std::size_t dimension() const override { return dimension_; }
  std::size_t features() const override { return features_; }
  std::vector<std::size_t> block_ends() const override { return variable_ends_; }
  std::size_t classes() const override { return targets_ ? 0 : kAnyLabel; }
  bool classifies() const override { return false; }
  bool takes_weights() const override { return false; }
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
    const float loss = call(gradient_, true, theta, batch, scratch);
    const float* out = scratch.out_data;
    std::copy_n(out, dimension_, gradient);
    const double squares = update_kernels().sum_of_squares(
        gradient, std::numeric_limits<float>::infinity(), 0, dimension_);
    if (std::isfinite(squares)) return loss;
    for (std::size_t i = 0; i < dimension_; ++i) {
      if (std::bit_cast<std::uint32_t>(gradient[i]) == kUnwritten) {
        throw std::invalid_argument("gradient has not written out[" + std::to_string(i) +
                                    "]; it must fill the array it is given, as in out[:] = g");
      }
    }
    return std::numeric_limits<float>::quiet_NaN();  // stops the run as not finite
  }

  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override {
    auto& scratch = static_cast<Scratch&>(workspace);
    const float mean = loss_ ? call(loss_, false, theta, batch, scratch)
                             : call(gradient_, true, theta, batch, scratch);
    return {static_cast<double>(mean) * static_cast<double>(batch.size), 0, batch.size};
  }

 private:
  struct Scratch final : Workspace {
    ~Scratch() override {
      const py::gil_scoped_acquire acquire;
      theta = x = y = out = py::object();
    }
    py::object theta, x, y, out;  // arrays, once a batch has come
    // Their memory, written without the GIL.
    float* theta_data = nullptr;
    float* x_data = nullptr;
    void* y_data = nullptr;
    float* out_data = nullptr;
    std::size_t batch = 0;
  };

  // With the GIL: arrays for the next call, that nobody else refers to.
  void renew(Scratch& s, std::size_t batch) const {
    const auto stale = [](const py::object& a) { return !a || a.ref_count() != 1; };
    const auto n = static_cast<py::ssize_t>(batch);
    const bool resized = s.batch != batch;
    const auto d = static_cast<py::ssize_t>(dimension_);
    if (stale(s.theta)) s.theta_data = keep<float>(s.theta, floats(d), true);
    if (stale(s.out)) s.out_data = keep<float>(s.out, floats(d), false);
    if (resized || stale(s.x)) {
      s.x_data = keep<float>(s.x, floats(n, static_cast<py::ssize_t>(features_)), true);
    }
    if (resized || stale(s.y)) {
      s.y_data = keep<void>(s.y, targets_ ? floats(n) : py::array_t<std::int32_t>(n), true);
    }
    s.batch = batch;
  }
  template <class T>
  static T* keep(py::object& kept, py::array array, bool read_only) {
    auto* data = static_cast<T*>(array.mutable_data());
    if (read_only) make_read_only(array);
    kept = std::move(array);
    return data;
  }

  float call(const py::object& f, bool with_out, const float* theta, const BatchView& batch,
             Scratch& s) const {
    if (s.batch != batch.size) {
      const py::gil_scoped_acquire acquire;
      renew(s, batch.size);
    }
    update_kernels().copy_racy(s.theta_data, theta, dimension_);  // Hogwild's may change meanwhile
    for (std::size_t i = 0; i < batch.size; ++i) {
      std::copy_n(batch.rows[i], features_, s.x_data + i * features_);
    }
    if (targets_) {
      std::copy_n(batch.targets.values, batch.size, static_cast<float*>(s.y_data));
    } else {
      std::copy_n(batch.targets.labels, batch.size, static_cast<std::int32_t*>(s.y_data));
    }
    if (with_out) std::fill_n(s.out_data, dimension_, std::bit_cast<float>(kUnwritten));

    const py::gil_scoped_acquire acquire;
    double loss = 0;
    {
      const py::object result = with_out ? f(s.theta, s.x, s.y, s.out) : f(s.theta, s.x, s.y);
      loss = PyFloat_AsDouble(result.ptr());
      if (loss == -1 && PyErr_Occurred()) {
        py::raise_from(PyExc_TypeError,
                       (std::string(with_out ? "gradient" : "loss") +
                        " must return the mean loss of the batch, a number; it returned " +
                        std::string(py::str(py::type::handle_of(result).attr("__name__"))))
                           .c_str());
        throw py::error_already_set();
      }
    }
    // `out` is read after this without the GIL; where it was kept, what it was stays alive.
    if (s.out.ref_count() != 1) kept_out(s);
    renew(s, batch.size);
    return static_cast<float>(loss);
  }

  // The callable kept `out`: the engine reads a copy, lest it be written to meanwhile.
  void kept_out(Scratch& s) const {
    py::array copy = floats(static_cast<py::ssize_t>(dimension_));
    std::copy_n(s.out_data, dimension_, static_cast<float*>(copy.mutable_data()));
    s.out_data = keep<float>(s.out, std::move(copy), false);
  }

  const py::object gradient_, loss_;
  const std::size_t dimension_, features_;
  const bool targets_;
  const std::vector<std::size_t> variable_ends_;
};

ExternalFunction function_at(std::uintptr_t address) {
  return reinterpret_cast<ExternalFunction>(address);
}
void* pointer_at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

void bind_external(py::module_& m) {
  py::class_<ExternalSource, GradientSource>(
      m, "ExternalSource", "Gradients from a native function, by the contract of leashed.h.")
      .def(py::init([](std::uintptr_t gradient, std::uintptr_t gradient_data, std::uintptr_t loss,
                       std::uintptr_t loss_data, std::size_t dimension, std::size_t features,
                       std::size_t workspace_bytes, bool targets,
                       std::vector<std::size_t> variable_ends) {
             require_some(dimension, "dimension");
             require_some(features, "features");
             return std::make_unique<ExternalSource>(ExternalSource::Parts{
                 function_at(gradient), function_at(loss), pointer_at(gradient_data),
                 pointer_at(loss_data), dimension, features, workspace_bytes, targets,
                 std::move(variable_ends)});
           }),
           py::arg("gradient"), py::arg("gradient_data"), py::arg("loss"), py::arg("loss_data"),
           py::arg("dimension"), py::arg("features"), py::arg("workspace_bytes"),
           py::arg("targets"), py::arg("variable_ends"));

  py::class_<PythonSource, GradientSource>(m, "PythonSource", "Gradients from a Python callable.")
      .def(py::init([](py::object gradient, const py::object& loss, std::size_t dimension,
                       std::size_t features, bool targets, std::vector<std::size_t> variable_ends) {
             return std::make_unique<PythonSource>(std::move(gradient),
                                                   loss.is_none() ? py::object() : loss, dimension,
                                                   features, targets, std::move(variable_ends));
           }),
           py::arg("gradient"), py::arg("loss"), py::arg("dimension"), py::arg("features"),
           py::arg("targets"), py::arg("variable_ends"));

  m.def(
      "mean_loss",
      [](const GradientSource& source, const FloatArray& theta, const FloatArray& x,
         const py::array& y) { return means(source, theta, view_of(source, x, y)).first; },
      py::arg("source"), py::arg("theta").noconvert(), py::arg("x").noconvert(), py::arg("y"),
      "The mean loss over all rows.");
}

}  // namespace leashed
