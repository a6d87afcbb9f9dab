// An embedding server, and who has which rows.
#include <algorithm>
#include <tuple>

#include "arrays.h"
#include "leashed/base/descriptor.h"
#include "leashed/cluster/row_profile.h"
#include "leashed/cluster/row_server.h"
#include "leashed/table/saving.h"
#include "parts.h"
#include "transports.h"

namespace leashed {
namespace {

// RowServer::Applied.
using PyApplied = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                             std::uint64_t, std::uint64_t>;

RowPlacement placement_of(const std::vector<std::pair<bool, std::int64_t>>& given,
                          const std::vector<std::uint16_t>& shards) {
  RowPlacement::Servers servers;
  if (shards.size() != servers.size()) {
    throw py::value_error("shards must be " + std::to_string(servers.size()) + " servers, got " +
                          std::to_string(shards.size()));
  }
  std::ranges::copy(shards, servers.begin());
  std::vector<RowPlacement::PlacedTable> tables;
  for (const auto& [grows, server] : given) {
    if (server < -1 || server > 0xFFFF) {
      throw py::value_error(
          "the server of a table must be its number, or -1 where it is spread, "
          "got " +
          std::to_string(server));
    }
    tables.push_back(
        {grows, server < 0 ? RowPlacement::kSpread : static_cast<std::uint32_t>(server)});
  }
  return {std::move(tables), servers};
}

py::dict counters_of_server(const RowServer& server) {
  using namespace pybind11::literals;
  const RowServer::Counters c = server.counters();
  return py::dict(
      "lookups"_a = c.lookups, "reads"_a = c.reads, "looked_up"_a = c.looked_up,
      "pooled"_a = c.pooled, "pushes"_a = c.pushes, "apart"_a = c.apart, "pushed"_a = c.pushed,
      "not_finite"_a = c.not_finite, "expired"_a = c.expired, "repeated"_a = c.repeated,
      "clients"_a = c.clients, "payload_bytes"_a = c.payload_bytes, "bytes_in"_a = c.traffic.in,
      "bytes_out"_a = c.traffic.out, "serving_seconds"_a = c.seconds,
      "connections"_a = c.connections, "refused"_a = c.refused, **kernel_counts(c.kernel));
}

}  // namespace

void bind_row_server(py::module_& m) {
  py::class_<RowPlacement>(m, "RowPlacement", "Which of several servers has the row of an id.")
      .def(py::init(&placement_of), py::arg("tables"), py::arg("shards"),
           "tables: whether each grows, and the server that has all of it, or -1: spread. shards: "
           "of each of 256 the server that has it of tables that are spread.")
      .def(
          "shards",
          [](const RowPlacement& placement, std::size_t table, std::size_t server) {
            if (table >= placement.tables()) throw py::index_error("no such table");
            const RowPlacement::Shards found = placement.shards(table, server);
            std::vector<bool> each;
            for (std::size_t shard = 0; shard < found.size(); ++shard) each.push_back(found[shard]);
            return each;
          },
          py::arg("table"), py::arg("server"), "Which of a table's 256 shards the server has.")
      .def(
          "server",
          [](const RowPlacement& placement, std::size_t table, std::int64_t id) {
            if (table >= placement.tables()) throw py::index_error("no such table");
            return placement(table, static_cast<std::uint64_t>(id));
          },
          py::arg("table"), py::arg("id"), "Which one has the row of an id.");

  py::class_<RowServer>(m, "RowServer", "Holds rows of tables; threads serve trainers.")
      .def(
          py::init([](const std::vector<std::shared_ptr<SavedTable>>& tables,
                      std::vector<std::size_t> numbers, const RowPlacement& placement,
                      std::size_t index, std::uint64_t boot, std::size_t loops) {
            return std::make_unique<RowServer>(
                std::vector<std::shared_ptr<Table>>(tables.begin(), tables.end()),
                std::move(numbers), placement, index, boot, loops);
          }),
          py::arg("tables"), py::arg("numbers"), py::arg("placement"), py::arg("index"),
          py::arg("boot"), py::arg("loops") = 1,
          "tables: those of which the server has rows; numbers: of these in the placement. boot: a "
          "number that no other server's process ever has. loops: threads that serve.")
      .def(
          "adopt",
          [](RowServer& server, int socket, bool checked, const std::string& transport) {
            const py::gil_scoped_release release;
            taking(socket, [&](int s) { server.adopt(s, checked, to_transport(transport)); });
          },
          py::arg("socket"), py::arg("checked"), py::arg("transport") = "tcp",
          "transport: tcp, shm or auto; with another than tcp it waits for the other side.")
      .def("counters", &counters_of_server,
           "What was counted; kernel_in and kernel_out, where all went over TCP.")
      .def(
          "quiet",
          [](RowServer& server, const py::function& f) {
            const py::gil_scoped_release release;
            server.quiet([&] {
              const py::gil_scoped_acquire acquire;
              f();
            });
          },
          py::arg("f"), "Calls f() while nobody is served.")
      .def(
          "applied",
          [](RowServer& server) {
            std::vector<PyApplied> found;
            const py::gil_scoped_release release;
            for (const auto& [client, life, number, outcomes, in_rows] : server.applied()) {
              found.emplace_back(client, life, number, outcomes.bits(), in_rows.pushes,
                                 in_rows.examples);
            }
            return found;
          },
          "Of each (client, its life, number of its last push that is applied, what became of that "
          "and those before it, as bits, how many pushes its rows have, and of how many examples).")
      .def(
          "restore",
          [](RowServer& server, const std::vector<PyApplied>& applied, std::uint64_t pushes) {
            std::vector<RowServer::Applied> all;
            for (const auto& [client, life, number, outcomes, pushes_of, examples] : applied) {
              all.push_back(
                  {client, life, number, Outcomes(outcomes), InRows{pushes_of, examples}});
            }
            const py::gil_scoped_release release;
            server.restore(all, pushes);
          },
          py::arg("applied"), py::arg("pushes"),
          "Before any connection: the tables have these, and so many pushes in all.")
      .def("expire", &RowServer::expire, py::call_guard<py::gil_scoped_release>(),
           "Lets go of what trainers had looked up already when this was called last, and have "
           "neither pushed nor dropped.");

  m.def(
      "profile_rows",
      [](int here, int there, const std::string& transport,
         const std::vector<std::shared_ptr<SavedTable>>& tables, const UserArray& ids,
         std::size_t examples) {
        using namespace pybind11::literals;
        Descriptor client(here), serving(there);
        RowCosts costs;
        {
          const std::span<const std::uint64_t> all(ids.data(),
                                                   static_cast<std::size_t>(ids.size()));
          const py::gil_scoped_release release;
          costs = profile_rows(client.take(), serving.take(), to_transport(transport),
                               {tables.begin(), tables.end()}, all, examples);
        }
        return py::dict("rows"_a = costs.rows, "serving"_a = costs.serving,
                        "asking"_a = costs.asking, "bytes_in"_a = costs.bytes_in,
                        "bytes_out"_a = costs.bytes_out);
      },
      py::arg("here"), py::arg("there"), py::arg("transport"), py::arg("tables"), py::arg("ids"),
      py::arg("examples"),
      "What a batch's rows cost, looked up and pushed, over the two ends of a connection: seconds "
      "of processor time of a server of these tables, and of the thread that asks it. ids: uint64 "
      "[batches, tables, examples].");
}

}  // namespace leashed
