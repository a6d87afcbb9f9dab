// ParameterVector for Python: reads are zero-copy arrays that keep their vector pinned for as long
// as anyone refers to them.
#include "leashed/vector/parameter_vector.h"

#include <atomic>
#include <mutex>
#include <optional>

#include "arrays.h"
#include "leashed/discipline/leashed.h"
#include "leashed/update/registry.h"
#include "parts.h"

namespace leashed {
namespace {

// The pool is sized for so many readers and workers; a permit is the right to be one of them.
class Permits {
 public:
  explicit Permits(std::size_t n) : left_(static_cast<std::ptrdiff_t>(n)) {}
  bool take() {
    std::ptrdiff_t left = left_.load(std::memory_order_relaxed);
    // Acquire: pairs with the release in give_back; the slots that were freed are seen as free.
    while (left > 0 && !left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                                    std::memory_order_relaxed)) {
    }
    return left > 0;
  }
  void give_back() { left_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<std::ptrdiff_t> left_;
};

struct SharedVector {
  SharedVector(const FloatArray& theta, std::size_t workers, std::size_t readers)
      // One reader more than the user may be: version().
      : vector(theta.data(), static_cast<std::size_t>(theta.size()), workers, readers + 1),
        worker_permits(workers),
        reader_permits(readers) {}

  std::uint64_t version() {
    const std::lock_guard one_at_a_time(version_mutex);
    return vector.pin().t();
  }

  ParameterVector vector;
  Permits worker_permits, reader_permits;
  std::mutex version_mutex;
};

// What a pinned array's base object owns.
struct PinnedBase {
  std::shared_ptr<SharedVector> shared;
  ParameterVector::Pin pin;
  ~PinnedBase() {
    pin.release();
    shared->reader_permits.give_back();
  }
};

class Read {
 public:
  explicit Read(std::shared_ptr<SharedVector> shared) : shared_(std::move(shared)) {}

  py::array enter() {
    const std::lock_guard one_at_a_time(mutex_);
    if (view_) throw std::runtime_error("this read is already entered; call read() again");
    if (!shared_->reader_permits.take()) {
      throw std::runtime_error(
          "too many views are alive at once; drop some, or make the ParameterVector with more "
          "readers");
    }
    auto base = std::make_unique<PinnedBase>();
    base->shared = shared_;
    base->pin = shared_->vector.pin();
    t_ = base->pin.t();
    const float* data = base->pin.data();
    const py::capsule owner(base.release(), [](void* p) { delete static_cast<PinnedBase*>(p); });
    py::array_t<float> view(static_cast<py::ssize_t>(shared_->vector.length()), data, owner);
    view.attr("setflags")(py::arg("write") = false);
    view_ = view;
    return view;
  }
  void exit(const py::args&) {
    const std::lock_guard one_at_a_time(mutex_);
    view_.reset();
  }
  std::uint64_t t() const { return t_; }

 private:
  std::shared_ptr<SharedVector> shared_;
  std::mutex mutex_;  // on free-threaded Python two threads may enter at once
  std::optional<py::array> view_;
  std::uint64_t t_ = 0;
};

struct PyParameterVector {
  std::shared_ptr<SharedVector> shared;

  // (published, staleness, failed attempts)
  py::tuple update(const FloatArray& gradient, float lr, double persistence,
                   std::uint64_t t_read) const {
    require_length(gradient, shared->vector.length(), "gradient");
    if (!shared->worker_permits.take()) {
      throw std::runtime_error(
          "too many threads update at once; make the ParameterVector with more workers");
    }
    struct GiveBack {
      Permits& permits;
      ~GiveBack() { permits.give_back(); }
    } const give_back{shared->worker_permits};
    Publication result;
    {
      const py::gil_scoped_release release;
      const auto rule = make_rule({"sgd", {{"lr", lr}}});
      const Updater updater(shared->vector.length(), *rule);
      StoreChoice stores(1, 0);  // a thread of the user's own; nothing is known of it
      result = load_and_update(shared->vector, updater, gradient.data(),
                               persistence_bound(persistence), t_read, stores);
    }
    return py::make_tuple(result.published, result.staleness_compute + result.staleness_schedule,
                          result.tries);
  }
};

}  // namespace

void bind_parameter_vector(py::module_& m) {
  py::class_<Read>(m, "Read")
      .def("__enter__", &Read::enter)
      .def("__exit__", &Read::exit)
      .def_property_readonly("t", &Read::t, "Version of the vector entered last.");

  py::class_<PyParameterVector>(m, "ParameterVector")
      .def(py::init([](const FloatArray& theta, std::size_t workers, std::size_t readers) {
             return PyParameterVector{std::make_shared<SharedVector>(theta, workers, readers)};
           }),
           py::arg("theta").noconvert(), py::arg("workers"), py::arg("readers"))
      .def("read", [](const PyParameterVector& v) { return std::make_unique<Read>(v.shared); })
      .def("update", &PyParameterVector::update, py::arg("gradient").noconvert(), py::arg("lr"),
           py::arg("persistence"), py::arg("t_read"))
      .def_property_readonly("t", [](const PyParameterVector& v) { return v.shared->version(); })
      .def_property_readonly("length",
                             [](const PyParameterVector& v) { return v.shared->vector.length(); })
      .def_property_readonly("live",
                             [](const PyParameterVector& v) { return v.shared->vector.live(); })
      .def_property_readonly(
          "capacity", [](const PyParameterVector& v) { return v.shared->vector.capacity(); });
}

}  // namespace leashed
