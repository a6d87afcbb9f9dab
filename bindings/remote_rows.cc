// A trainer's rows that embedding servers hold.
#include "leashed/cluster/remote_rows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "leashed/base/choice.h"
#include "transports.h"

namespace leashed {
namespace {

using PyServedTable = std::tuple<std::string, std::size_t, std::uint64_t>;

py::dict counters_of_rows(const RemoteRows& rows) {
  using namespace pybind11::literals;
  const RemoteRows::Counters c = rows.counters();
  return py::dict("lookups"_a = c.lookups, "reads"_a = c.reads, "rows"_a = c.rows,
                  "examples"_a = c.examples, "least_bytes"_a = c.least_bytes,
                  "all_rows_bytes"_a = c.row_bytes, "pools"_a = c.pools, "pushes"_a = c.pushes,
                  "settled"_a = c.settled, "not_finite"_a = c.not_finite, "expired"_a = c.expired,
                  "lost"_a = c.lost, "lost_examples"_a = c.lost_examples,
                  "unsettled"_a = c.unsettled, "cuts"_a = c.cuts, "seconds"_a = c.seconds,
                  "settling"_a = c.settling, "bytes_out"_a = c.traffic.out,
                  "bytes_in"_a = c.traffic.in, **kernel_counts(c.kernel));
}

const std::map<std::string, Pooling> kPoolings = {
    {"sum", Pooling::sum}, {"mean", Pooling::mean}, {"max", Pooling::max}};
const std::map<std::string, PooledAt> kPlaces = {
    {"rows", PooledAt::rows}, {"servers", PooledAt::servers}, {"auto", PooledAt::automatic}};

PoolChoice::Poolings poolings_of(const std::vector<std::optional<std::string>>& names) {
  PoolChoice::Poolings found;
  for (const auto& name : names) {
    found.push_back(name ? std::optional(find_choice(kPoolings, "pooling", *name)) : std::nullopt);
  }
  return found;
}

}  // namespace

void bind_remote_rows(py::module_& m) {
  m.attr("MOST_AHEAD") = kMostAhead;
  py::class_<RemoteRows, std::shared_ptr<RemoteRows>> rows(
      m, "RemoteRows",
      "Rows that embedding servers hold, for a training's workers and evaluations.");
  bind_connections(rows);
  rows.def(
          py::init([](const std::vector<PyServedTable>& tables, std::vector<std::size_t> features,
                      const RowPlacement& placement, std::size_t servers, std::size_t workers,
                      std::size_t readers, std::uint64_t client, std::uint64_t life, double timeout,
                      double patience, std::size_t look_ahead,
                      const std::vector<std::optional<std::string>>& poolings,
                      const std::string& pooling, bool apart) {
            std::vector<ServedTable> served;
            for (const auto& [name, dim, rows] : tables) served.push_back({name, dim, rows});
            return std::make_shared<RemoteRows>(
                RemotePlan{std::move(served), std::move(features), placement, servers, workers,
                           readers, client, life, timeout, patience, look_ahead, nullptr,
                           poolings_of(poolings), find_choice(kPlaces, "pooling", pooling), apart});
          }),
          py::kw_only(), py::arg("tables"), py::arg("features"), py::arg("placement"),
          py::arg("servers"), py::arg("workers"), py::arg("readers"), py::arg("client"),
          py::arg("life"), py::arg("timeout"), py::arg("patience"), py::arg("look_ahead") = 1,
          py::arg("poolings") = std::vector<std::optional<std::string>>(),
          py::arg("pooling") = "auto", py::arg("apart") = false,
          "tables: (name, dim, rows, or 0 where it grows) of each; features: of each its table. "
          "client: the first thread's number, behind which are as many others' as there are slots; "
          "life: a number that no other process ever has, and none before it a larger one. "
          "timeout: seconds of silence after which a connection is given up; patience: those for "
          "which a server is waited for. poolings: of each feature sum, mean or max, or None where "
          "its rows are read; empty: None of each. "
          "pooling: where those are pooled, at servers, in rows that are read, or auto, where that "
          "is fewer bytes. apart: workers make calls (RowCalls), each of a table of its own.")
      .def_property_readonly("pooled", &RemoteRows::pooled,
                             "Of each feature whether servers pool it; None: not decided yet.")
      .def_property_readonly("settled", &RemoteRows::settled,
                             "Whether all workers wait for batches, and all that they have pushed "
                             "is applied.")
      .def("expect", &RemoteRows::expect,
           "A server that is not reached yet has told that it will be: patience begins anew.")
      .def("forsake", &RemoteRows::forsake,
           "Nobody has these rows any more: a training by them ends as one that is interrupted.")
      .def_property_readonly("forsaken", &RemoteRows::forsaken)
      .def("counters", &counters_of_rows,
           "What was counted; kernel_in and kernel_out, where all went over TCP.");
}

}  // namespace leashed
