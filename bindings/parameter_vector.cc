// ParameterVector for Python.
#include "leashed/vector/parameter_vector.h"

#include <mutex>

#include "leashed/discipline/leashed.h"
#include "leashed/update/registry.h"
#include "parts.h"
#include "read.h"

namespace leashed {
namespace {

class SharedVector final : public Readable {
 public:
  SharedVector(const FloatArray& theta, std::size_t workers, std::size_t readers)
      // One reader more than the user may be: version().
      : vector_(theta.data(), static_cast<std::size_t>(theta.size()), workers, readers + 1),
        workers_(workers),
        readers_(readers) {}

  std::size_t dimension() const override { return vector_.length(); }
  std::unique_ptr<Held> hold() override {
    return hold_under(readers_, "ParameterVector", [this] { return hold_latest(vector_); });
  }

  py::object update(const FloatArray& gradient, float lr, double persistence,
                    std::uint64_t t_read) {
    require_length(gradient, vector_.length(), "gradient");
    if (!workers_.take()) {
      throw std::runtime_error(
          "too many threads update at once; make the ParameterVector with more workers");
    }
    struct GiveBack {
      Permits& permits;
      ~GiveBack() { permits.give_back(); }
    } const give_back{workers_};
    const GradientPiece whole{gradient.data(), 0, vector_.length()};
    Publication result;
    {
      const py::gil_scoped_release release;
      const auto rule = make_rule({"sgd", {{"lr", lr}}});
      const Updater updater(vector_.length(), *rule);
      StoreChoice stores(1, 0);  // a thread of the user's own; nothing is known of it
      result = load_and_update(vector_, updater, {&whole, 1}, persistence_bound(persistence),
                               t_read, stores);
    }
    return to_update(result);
  }

  std::uint64_t version() {
    const std::lock_guard one_at_a_time(version_mutex_);
    return vector_.pin().t();
  }
  std::size_t live() const { return vector_.live(); }
  std::size_t capacity() const { return vector_.capacity(); }

 private:
  ParameterVector vector_;
  Permits workers_, readers_;
  std::mutex version_mutex_;
};

}  // namespace

void bind_parameter_vector(py::module_& m) {
  py::class_<SharedVector, std::shared_ptr<SharedVector>>(m, "ParameterVector")
      .def(py::init<const FloatArray&, std::size_t, std::size_t>(), py::arg("theta").noconvert(),
           py::arg("workers"), py::arg("readers"))
      .def("read", [](const std::shared_ptr<SharedVector>& v) { return std::make_unique<Read>(v); })
      .def("update", &SharedVector::update, py::arg("gradient").noconvert(), py::arg("lr"),
           py::arg("persistence"), py::arg("t_read"))
      .def_property_readonly("t", &SharedVector::version)
      .def_property_readonly("length", &SharedVector::dimension)
      .def_property_readonly("live", &SharedVector::live)
      .def_property_readonly("capacity", &SharedVector::capacity);
}

}  // namespace leashed
