#include "leashed/backend/engine.h"

#include <algorithm>
#include <thread>

#include "choice.h"
#include "gradient.h"
#include "leashed/cluster/trainer_sync.h"
#include "mixing.h"
#include "parts.h"
#include "read.h"

namespace leashed {
namespace {

// With the GIL only where nobody is waited for: not where `size` floats are many, whoever works on
// them, not at a thread's first push, which may have to wait for its place, and not where a push
// may synchronise.
template <class F>
auto without_gil(Engine& engine, std::size_t size, const F& f) {
  if (size < kReleaseGil && !engine.synchronised() && engine.joined()) return f();
  if (engine.synchronised() && Mixing::inside()) {
    throw std::runtime_error("mix must not push to an engine that is synchronised");
  }
  const py::gil_scoped_release release;
  return f();
}

py::object push_gradient(Engine& engine, py::handle gradient,
                         const std::optional<std::uint64_t>& t) {
  std::size_t size = engine.dimension();
  const GradientPiece whole{values_of<float>(gradient, "gradient", size), 0, size};
  return to_update(without_gil(engine, size, [&] {
    return engine.push({&whole, 1}, t ? &*t : nullptr);
  }));
}

void check_indices(const std::int64_t* indices, std::size_t n, std::size_t dimension) {
  std::int64_t last = -1;
  for (std::size_t i = 0; i < n; ++i) {
    if (indices[i] <= last || indices[i] >= static_cast<std::int64_t>(dimension)) {
      const std::string at = "indices[" + std::to_string(i) + "] is " + std::to_string(indices[i]);
      if (indices[i] < 0 || indices[i] >= static_cast<std::int64_t>(dimension)) {
        throw py::index_error(at + ", outside 0 to " + std::to_string(dimension - 1));
      }
      throw py::value_error(at + ", after " + std::to_string(last) +
                            "; they must ascend without repetition: sort them, and add up the "
                            "values of equal ones");
    }
    last = indices[i];
  }
}

py::object push_sparse(Engine& engine, py::handle indices, py::handle values,
                       const std::optional<std::uint64_t>& t) {
  std::size_t n = 0;
  const auto* where = values_of<std::int64_t>(indices, "indices", n);
  std::size_t n_values = 0;
  const auto* what = values_of<float>(values, "values", n_values);
  if (n_values != n) {
    throw py::value_error("values must have length " + std::to_string(n) + ", as indices, got " +
                          std::to_string(n_values));
  }
  check_indices(where, n, engine.dimension());
  return to_update(without_gil(engine, n, [&] {
    return engine.push_sparse({where, what, n}, t ? &*t : nullptr);
  }));
}

py::object push_pieces(Engine& engine, const Places& places,
                       const std::optional<std::uint64_t>& t) {
  const auto pieces = pieces_at(places, engine.dimension());
  return to_update(without_gil(engine, engine.dimension(),
                               [&] { return engine.push(pieces, t ? &*t : nullptr); }));
}

// (Threads that train on the parameters themselves ask before every step.)
std::uint64_t t(Engine& engine) {
  if (engine.dimension() < kReleaseGil || engine.counts_alone()) return engine.t();
  const py::gil_scoped_release release;
  return engine.t();
}

// (theta, [state 1, …], t): copies, of one moment.
py::tuple engine_state(Engine& engine) {
  const Layout& layout = engine.layout();
  const auto d = static_cast<py::ssize_t>(layout.dimension);
  py::array_t<float> theta(d);
  std::vector<float*> targets{theta.mutable_data()};
  py::list states;
  for (std::size_t k = 0; k < layout.states; ++k) {
    py::array_t<float> part(d);
    targets.push_back(part.mutable_data());
    states.append(part);
  }
  std::uint64_t version = 0;
  {
    const py::gil_scoped_release release;
    engine.with_state([&](const float* buffer, std::uint64_t t) {
      for (std::size_t k = 0; k < targets.size(); ++k) {
        std::copy_n(buffer + k * layout.stride(), layout.dimension, targets[k]);
      }
      version = t;
    });
  }
  return py::make_tuple(theta, states, version);
}

// The writable parameters where they lie; for leashed.torch.
py::object engine_memory(const std::shared_ptr<Engine>& engine) {
  if (!engine->memory()) return py::none();
  const py::capsule owner(new std::shared_ptr<Engine>(engine),
                          [](void* p) { delete static_cast<std::shared_ptr<Engine>*>(p); });
  return py::array_t<float>(static_cast<py::ssize_t>(engine->dimension()), engine->memory(), owner);
}

// Python's signal handlers have their turn meanwhile, and what they raise ends it.
void begin(Engine& engine) {
  const py::gil_scoped_release release;
  engine.begin([] {
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    return true;
  });
}

// (place, number) of the next batch; None: there may be one later. StopIteration: there is none.
py::object take_batch(Engine& engine, Leases& leases, double seconds) {
  std::uint64_t place = 0, number = 0;
  Leases::Claim claim;
  {
    const py::gil_scoped_release release;
    claim = engine.take(leases, seconds, place, number);
  }
  if (claim == Leases::Claim::none) throw py::stop_iteration();
  if (claim == Leases::Claim::waiting) return py::none();
  return py::make_tuple(place, number);
}

void may_close(const Engine& engine) {
  if (engine.synchronised() && Mixing::inside()) {
    throw std::runtime_error("mix must not close an engine that is synchronised");
  }
}

void close(Engine& engine) {
  may_close(engine);
  const py::gil_scoped_release release;
  engine.close();
}

// Its end waits for threads that may want the GIL, and where garbage is collected within one of
// them, for that one: then another does it.
void end(Engine* engine) {
  if (!engine->synchronised()) {
    delete engine;
  } else if (Mixing::inside()) {
    std::thread([engine] { delete engine; }).detach();
  } else if (PyGILState_Check()) {
    const py::gil_scoped_release release;
    delete engine;
  } else {
    delete engine;
  }
}

std::shared_ptr<Engine> make_engine(const FloatArray& theta, const PyChoice& discipline,
                                    const PyChoice& rule, const PyChoice& staleness,
                                    std::size_t workers, std::size_t readers,
                                    std::vector<std::size_t> variable_ends, bool check_finite,
                                    const std::vector<FloatArray>& states, std::uint64_t t,
                                    const std::optional<std::shared_ptr<TrainerSync>>& others) {
  const auto d = static_cast<std::size_t>(theta.size());
  Engine::Parts parts{
      to_choice(discipline),    to_choice(rule), to_choice(staleness), workers, readers,
      std::move(variable_ends), check_finite};
  const auto made = [&] {
    if (others) parts.synchronisation = *others;
    return std::shared_ptr<Engine>(new Engine(theta.data(), d, parts), &end);
  };
  if (states.empty() && t == 0) return made();
  // From where another one was: a buffer in the layout that this one will have.
  const Layout layout = Engine(theta.data(), d, parts).layout();
  if (states.size() != layout.states) {
    throw py::value_error("the rule keeps " + std::to_string(layout.states) +
                          " vectors of state, got " + std::to_string(states.size()));
  }
  std::vector<float> buffer(layout.length());
  std::copy_n(theta.data(), d, buffer.data());
  for (std::size_t k = 0; k < states.size(); ++k) {
    require_length(states[k], d, "state");
    std::copy_n(states[k].data(), d, buffer.data() + (k + 1) * layout.stride());
  }
  parts.state = buffer.data();
  parts.t = t;
  return made();
}

}  // namespace

void bind_engine(py::module_& m) {
  py::class_<Engine, std::shared_ptr<Engine>>(m, "Engine")
      .def(py::init(&make_engine), py::arg("theta").noconvert(), py::arg("discipline"),
           py::arg("rule"), py::arg("staleness"), py::arg("workers"), py::arg("readers"),
           py::arg("variable_ends"), py::arg("check_finite"), py::arg("states"), py::arg("t"),
           py::arg("synchronisation") = py::none())
      .def(
          "read", [](const std::shared_ptr<Engine>& e) { return new_read(e); },
          "A context manager that gives the latest parameters as a read-only float32 [d] array, "
          "with their version in the attribute ``t``.")
      .def("push", &push_gradient, py::arg("gradient"), py::kw_only(), py::arg("t") = py::none(),
           "Apply a gradient, float32 [d], under the rule, the discipline and the staleness "
           "policy.")
      .def("push_sparse", &push_sparse, py::arg("indices"), py::arg("values"), py::kw_only(),
           py::arg("t") = py::none(),
           "Apply a gradient that is ``values`` (float32 [n]) at ``indices`` (int64 [n], "
           "ascending) and zero elsewhere; only under Hogwild.")
      .def("_push_pieces", &push_pieces, py::arg("pieces"), py::arg("t") = py::none())
      .def("_read_for_torch",
           [](const std::shared_ptr<Engine>& e) { return new_read(e, {.writable = true}); })
      .def("_state", &engine_state)
      .def("_memory", &engine_memory)
      .def("_begin", &begin)
      .def("_may_close", &may_close)
      .def("_take", &take_batch, py::arg("leases"), py::arg("seconds"))
      .def("_counters",
           [](const Engine& engine) {
             using namespace pybind11::literals;
             const Engine::Counters& c = engine.counters();
             constexpr auto kRelaxed = std::memory_order_relaxed;
             return py::dict("published"_a = c.published.load(kRelaxed),
                             "staleness"_a = c.staleness.load(kRelaxed),
                             "lost"_a = c.lost.load(kRelaxed));
           })
      .def("close", &close,
           "Refuse reads and pushes from here on, and end the synchronisation; views stay valid.")
      .def_property_readonly("t", &t, "Updates applied so far.")
      .def_property_readonly("dimension", &Engine::dimension, "d, the number of parameters.")
      .def_property_readonly("workers", &Engine::workers, "Threads that may push.")
      .def_property_readonly("live", &Engine::live_vectors, "Parameter vectors in use.");
}

}  // namespace leashed
