// Collectives that Python has (leashed/cluster/meeting.py).
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <utility>

#include "leashed/cluster/collective.h"
#include "mixing.h"

namespace leashed {

namespace py = pybind11;

// Calls it with the GIL; what it raises is a ConnectionError. Waits in it for a moment at a time,
// so that whoever gives up a round does so as soon as over connections of the core's own.
class GivenCollective final : public Collective {
 public:
  explicit GivenCollective(py::object given) : given_(std::move(given)) {}
  GivenCollective(const GivenCollective&) = delete;
  GivenCollective& operator=(const GivenCollective&) = delete;
  ~GivenCollective() override {
    const py::gil_scoped_acquire acquire;
    const Mixing mixing;
    try {
      given_.attr("close")();
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("closing a collective");
    }
    given_ = py::object();
  }

  void sum(std::span<float> values, const RingCodec& codec, const Deadline& deadline) override {
    if (codec.codec != Codec::none) throw Error("only the own ring has compression");
    run(values, deadline, [this](const py::array& all) { given_.attr("sum")(all); });
  }
  void broadcast(std::span<float> values, std::size_t root, const Deadline& deadline) override {
    run(values, deadline, [&](const py::array& all) { given_.attr("broadcast")(all, root); });
  }
  void count(WireCount&) override {}

 private:
  static constexpr double kLook = 0.02;  // seconds between two looks at the deadline

  // On an array of the call's own: where a round is given up, somebody may still write to it.
  template <class F>
  void run(std::span<float> values, const Deadline& deadline, const F& begin) {
    const py::gil_scoped_acquire acquire;
    const Mixing mixing;
    py::array_t<float> all(static_cast<py::ssize_t>(values.size()), values.data());
    translated([&] { begin(all); });
    while (!translated([this] { return given_.attr("done")(kLook).template cast<bool>(); })) {
      const py::gil_scoped_release release;
      deadline.check();
    }
    std::copy_n(all.data(), values.size(), values.data());
  }

  template <class F>
  static auto translated(const F& f) {
    try {
      return f();
    } catch (const py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C, the end of the process
      throw ConnectionError(ConnectionError::Reason::lost, error.what());
    } catch (const py::cast_error& error) {
      throw ConnectionError(ConnectionError::Reason::lost, error.what());
    }
  }

  py::object given_;
};

}  // namespace leashed
