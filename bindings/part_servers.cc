// Several policy servers of a mode: those behind the first.
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "choice.h"
#include "data.h"
#include "leashed/cluster/part_server.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/staleness/registry.h"
#include "leashed/table/saving.h"
#include "leashed/update/registry.h"
#include "mode_counts.h"
#include "mode_taken.h"
#include "parts.h"
#include "shards.h"
#include "transports.h"

namespace leashed {
namespace {

// A server with what it is made from.
struct PyPartServer {
  PyPartServer(const FloatArray& theta, const PyChoice& mode, const PyChoice& rule_of,
               const PyChoice& staleness_of, std::size_t workers, PartService::Run run,
               const std::vector<std::shared_ptr<SavedTable>>& tables,
               const std::optional<PyBegun>& from, bool leads, const std::optional<PyWords>& served,
               std::optional<PyWords> ever_told)
      : ever(std::move(ever_told)),
        rule(make_rule(to_choice(rule_of), workers)),
        staleness(make_staleness(to_choice(staleness_of))),
        rows(tables.empty()
                 ? nullptr
                 : std::make_unique<RowHolder>(
                       std::vector<std::shared_ptr<Table>>(tables.begin(), tables.end()),
                       std::vector<std::size_t>(), from ? from->first.position.updates : 0)) {
    if (ever) run.ever = {ever->mutable_data(), 2};
    const std::size_t nodes = from ? from->second : workers;
    require_some(nodes, "nodes");
    DisciplineContext context{theta.data(), static_cast<std::size_t>(theta.size()), nodes, 1, *rule,
                              *staleness};
    if (!from) {
      server.emplace(to_choice(mode), context, run, rows.get());
      return;
    }
    const Checkpoint& begins = from->first;
    const Layout layout = Updater(context).layout();
    require_fit(begins, layout, context.sparse);
    const Resumed resumed(begins, layout, *staleness, context);
    Archived as_then;
    if (served) as_then.words.assign(served->data(), served->data() + served->size());
    const BegunMode begun{begins.mode, workers, leads, served ? &as_then : nullptr};
    server.emplace(to_choice(mode), context, run, rows.get(), &begun);
  }

  std::optional<PyWords> ever;  // which the server writes to
  const std::unique_ptr<const Rule> rule;
  const std::unique_ptr<const StalenessPolicy> staleness;
  const std::unique_ptr<RowHolder> rows;  // of tables; null: it has none
  std::optional<PartServer> server;       // always
};

py::dict counters_of(const PyPartServer& of) {
  using namespace pybind11::literals;
  const PartServer::Counters c = of.server->counters();
  return py::dict(
      "grants"_a = c.grants, "pushes"_a = c.pushes, "part_examples"_a = c.examples,
      "not_finite"_a = c.not_finite, "late_parts"_a = c.late_parts, "strange"_a = c.strange,
      "replaced"_a = c.replaced, "lanes"_a = c.lanes, "looks"_a = c.looks,
      "published"_a = c.published, "staleness"_a = c.staleness, "payload_bytes"_a = c.payload_bytes,
      "lookups"_a = c.lookups, "reads"_a = c.reads, "looked_up"_a = c.looked_up,
      "row_moved"_a = c.rows_moved.bytes, "row_least"_a = c.rows_moved.least,
      "bytes_in"_a = c.traffic.in, "bytes_out"_a = c.traffic.out, "serving_seconds"_a = c.seconds,
      "connections"_a = c.connections, "refused"_a = c.refused, **kernel_counts(c.kernel));
}

py::dict part_standing_of(PyPartServer& of) {
  using namespace pybind11::literals;
  ModeCounts counts;
  std::uint64_t updates = 0, position = 0;
  std::string failure;
  {
    const py::gil_scoped_release release;
    of.server->quiet([&](PartService& service) {
      counts = service.server().counts();
      updates = service.server().holder().pull().t();
      position = service.position();
      failure = service.failure();
    });
  }
  py::dict all("updates"_a = updates, "position"_a = position, "missing"_a = counts.missing,
               "failure"_a = failure);
  add_counts(all, std::move(counts));
  return all;
}

}  // namespace

void bind_part_servers(py::module_& m) {
  m.def(
      "check_parts",
      [](const std::string& mode, const PyChoice& rule, const PyChoice& staleness) {
        deciding(mode);
        require_parts(*make_rule(to_choice(rule)), *make_staleness(to_choice(staleness)),
                      "policy_servers");
      },
      py::arg("mode"), py::arg("rule"), py::arg("staleness"),
      "Raises ValueError where no several policy servers, each with a part of the parameters, can "
      "train so.");
  m.def(
      "decide_alike", [](const std::string& mode) { return deciding(mode) == Deciding::alike; },
      py::arg("mode"),
      "Whether several policy servers of that mode decide all as the first, rather than each by "
      "itself.");
  py::class_<PyPartServer>(m, "PartServer",
                           "A policy server behind the first; a thread serves its workers.")
      .def(
          py::init([](const FloatArray& theta, const PyChoice& mode, const PyChoice& rule,
                      const PyChoice& staleness, std::size_t workers, std::uint64_t run,
                      std::uint64_t terms, std::uint64_t boot, std::uint64_t server,
                      const std::vector<std::shared_ptr<SavedTable>>& tables,
                      const std::optional<PyBegun>& begun, bool leads,
                      const std::optional<PyWords>& served, const std::optional<PyWords>& ever,
                      bool again, bool reduces, bool recorded) {
            require_some(workers, "workers");
            if (ever && ever->size() != 2) throw Error("ever must have 2 numbers");
            return std::make_unique<PyPartServer>(
                theta, mode, rule, staleness, workers,
                PartService::Run{run, terms, boot, server, {}, again, reduces, recorded}, tables,
                begun, leads, served, ever);
          }),
          py::kw_only(), py::arg("theta").noconvert(), py::arg("mode"), py::arg("rule"),
          py::arg("staleness"), py::arg("workers"), py::arg("run"), py::arg("terms"),
          py::arg("boot"), py::arg("server"),
          py::arg("tables") = std::vector<std::shared_ptr<SavedTable>>(),
          py::arg("begun") = py::none(), py::arg("leads") = false, py::arg("served") = py::none(),
          py::arg("ever") = py::none(), py::arg("again") = false, py::arg("reduces") = false,
          py::arg("recorded") = false,
          "theta: its part, float32. mode, and the others: as of PolicyServer; server: its number, "
          "from 1. tables: of which it has rows, in the order of the model. begun: its part of a "
          "state; leads: of servers that decide by themselves, that is of the mode of the first. "
          "served, ever: as of PolicyServer, but for when the end is told; again: it was started "
          "again, and asks the first; before it has heard, it must be handed no lane. reduces: as "
          "of PolicyServer. recorded: the first is, and asks it at the end.")
      .def(
          "adopt",
          [](PyPartServer& of, int socket, bool checked, const std::string& transport) {
            const py::gil_scoped_release release;
            taking(socket, [&](int s) { of.server->adopt(s, checked, to_transport(transport)); });
          },
          py::arg("socket"), py::arg("checked"), py::arg("transport") = "tcp",
          "As of PolicyServer.")
      .def(
          "follow",
          [](PyPartServer& of, int socket, bool checked, const std::string& transport) {
            const py::gil_scoped_release release;
            taking(socket, [&](int s) { of.server->follow(s, checked, to_transport(transport)); });
          },
          py::arg("socket"), py::arg("checked"), py::arg("transport") = "tcp",
          "Takes a connection to the first server over.")
      .def_property_readonly(
          "follows", [](const PyPartServer& of) { return of.server->follows(); },
          "Whether it has a connection to the first server.")
      .def_property_readonly(
          "asks", [](const PyPartServer& of) { return of.server->asks(); },
          "Whether it was started again, and has not heard yet what it has to know.")
      .def_property_readonly(
          "end_known", [](const PyPartServer& of) { return of.server->end_known(); },
          "Whether the first has what it asks for at the end of a run that is recorded.")
      .def("counters", &counters_of,
           "What was counted; kernel_in and kernel_out, where all went over TCP.")
      .def("standing", &part_standing_of,
           "Updates, lines of the first server's log that are carried out, what its mode has "
           "decided, and why it serves nobody any more (empty: it does), all of one moment.")
      .def_property_readonly(
          "parameters",
          [](PyPartServer& of) {
            std::vector<float> theta;
            {
              const py::gil_scoped_release release;
              of.server->quiet([&](PartService& service) {
                const Holder& holder = service.server().holder();
                const ParameterVector::Pin latest = service.server().holder().pull();
                theta.assign(latest.data(), latest.data() + holder.dimension());
              });
            }
            return to_array(std::move(theta));
          },
          "A copy of its part, float32.")
      .def_property_readonly(
          "at_rest",
          [](PyPartServer& of) {
            const py::gil_scoped_release release;
            bool rests = false;
            of.server->quiet([&](PartService& service) { rests = service.at_rest(); });
            return rests;
          },
          "That all is carried out that the first has heard, once that was at rest.")
      .def(
          "take",
          [](PyPartServer& of) {
            const py::gil_scoped_release release;
            PyTaken taken;
            of.server->quiet([&](PartService& service) {
              taken = taken_from(service, service.take(), of.rows.get());
            });
            return taken;
          },
          "While it is at rest its part of what PolicyServer.take gives.")
      .def(
          "keep",
          [](PyPartServer& of) {
            PyTaken taken;
            std::vector<std::uint64_t> served;
            std::pair<std::uint64_t, std::uint64_t> used;
            {
              const py::gil_scoped_release release;
              of.server->quiet([&](PartService& service) {
                used = service.used();
                served = service.served().words;
                taken = taken_from(service, service.take(), of.rows.get());
              });
            }
            return std::tuple(std::move(taken), PyWords(py::ssize_t(served.size()), served.data()),
                              used);
          },
          "As of PolicyServer, its part; and pushes of whose parts something has become, and their "
          "examples.")
      .def(
          "kept",
          [](PyPartServer& of, std::uint64_t position) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PartService& service) { service.kept(position); });
          },
          py::arg("position"),
          "What keep() gave with that line of the log is kept: nobody asks for those before it.")
      .def(
          "quiet",
          [](PyPartServer& of, const py::function& f) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PartService&) {
              const py::gil_scoped_acquire acquire;
              f();
            });
          },
          py::arg("f"), "Calls f() while nobody is served.")
      .def(
          "let_go",
          [](PyPartServer& of, std::uint64_t first, std::uint64_t clients) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PartService& service) { service.let_go(first, clients); });
          },
          py::arg("first"), py::arg("clients"), "As of PolicyServer.");
}

}  // namespace leashed
