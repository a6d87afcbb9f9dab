// Calls by which a thread of Python looks up and updates rows that embedding servers hold: none
// keeps the GIL.
#include "leashed/cluster/row_calls.h"

#include "arrays.h"
#include "parts.h"
#include "rows.h"
#include "signals.h"

namespace leashed {
namespace {

using RowIdArray = py::array_t<std::int64_t, py::array::c_style>;

// (A negative id is its bit pattern.)
std::span<const std::uint64_t> ids_of(const RowIdArray& ids) {
  return {reinterpret_cast<const std::uint64_t*>(ids.data()), static_cast<std::size_t>(ids.size())};
}

// [n, dim], which f fills.
template <class F>
py::array_t<float> rows_by(const RowCalls& calls, std::size_t n, const F& f) {
  py::array_t<float> found({n, calls.dim()});
  float* const to = found.mutable_data();
  const py::gil_scoped_release release;
  f(to);
  return found;
}

// What f tells became of updates.
template <class F>
py::dict told_by(const F& f) {
  const RowPublication told = [&] {
    const py::gil_scoped_release release;
    return f();
  }();
  return to_dict(told);
}

}  // namespace

void bind_row_calls(py::module_& m) {
  py::class_<RowCalls>(m, "RowCalls", "Look-ups and updates of one table by one thread.")
      .def(py::init<std::shared_ptr<RemoteRows>, std::size_t>(), py::arg("rows"), py::arg("worker"))
      .def(
          "ask",
          [](RowCalls& calls, const RowIdArray& ids) {
            const auto all = ids_of(ids);
            const py::gil_scoped_release release;
            return calls.ask(all, SignalWatch());
          },
          py::arg("ids").noconvert(), "The look-up's number.")
      .def("keeps", &RowCalls::keeps, py::arg("number"), "Whether that look-up is not over.")
      .def(
          "values",
          [](RowCalls& calls, std::uint64_t number) {
            return rows_by(calls, calls.count(number),
                           [&](float* to) { calls.values(number, to, SignalWatch()); });
          },
          py::arg("number"), "[n, dim], of its ids.")
      .def(
          "update",
          [](RowCalls& calls, std::uint64_t number, const FloatArray& gradients) {
            require_length(gradients, calls.count(number) * calls.dim(), "gradients");
            return told_by([&] { return calls.update(number, gradients.data(), SignalWatch()); });
          },
          py::arg("number"), py::arg("gradients").noconvert(),
          "What became of updates before; that look-up is over.")
      .def(
          "look",
          [](RowCalls& calls, const RowIdArray& ids) {
            const auto all = ids_of(ids);
            return rows_by(calls, all.size(),
                           [&](float* to) { calls.look(all, to, SignalWatch()); });
          },
          py::arg("ids").noconvert(), "[n, dim], for who only reads.")
      .def(
          "finish",
          [](RowCalls& calls) { return told_by([&] { return calls.finish(SignalWatch()); }); },
          "Waits until all updates are applied; what became of them.")
      .def("leave", &RowCalls::leave, py::call_guard<py::gil_scoped_release>());
}

}  // namespace leashed
