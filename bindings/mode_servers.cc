// Modes over several processes: the policy server that leads one, and a trainer of it.
#include <optional>
#include <utility>
#include <vector>

#include "arrays.h"
#include "choice.h"
#include "data.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/update/registry.h"
#include "mode_counts.h"
#include "parts.h"
#include "transports.h"

namespace leashed {
namespace {

// A server with what it is made from.
struct PyPolicyServer {
  PyPolicyServer(const FloatArray& theta, std::vector<std::size_t> block_ends, const PyChoice& mode,
                 const PyChoice& rule_of, const PyChoice& staleness_of, std::size_t workers,
                 PolicyService::Run run)
      : rule(make_rule(to_choice(rule_of), workers)),
        staleness(make_staleness(to_choice(staleness_of))),
        server(modes::make_server_policy(to_choice(mode)),
               {theta.data(), static_cast<std::size_t>(theta.size()), workers, 1, *rule, *staleness,
                std::move(block_ends)},
               run) {}

  const std::unique_ptr<const Rule> rule;
  const std::unique_ptr<const StalenessPolicy> staleness;
  PolicyServer server;
};

py::dict counters_of_server(const PyPolicyServer& of) {
  using namespace pybind11::literals;
  const PolicyServer::Counters c = of.server.counters();
  return py::dict("pulls"_a = c.pulls, "grants"_a = c.grants, "pushes"_a = c.pushes,
                  "not_finite"_a = c.not_finite, "strange"_a = c.strange, "replaced"_a = c.replaced,
                  "departures"_a = c.departures, "lost"_a = c.lost, "unused"_a = c.unused,
                  "lanes"_a = c.lanes, "looks"_a = c.looks, "published"_a = c.published,
                  "staleness"_a = c.staleness, "payload_bytes"_a = c.payload_bytes,
                  "bytes_in"_a = c.traffic.in, "bytes_out"_a = c.traffic.out,
                  "serving_seconds"_a = c.seconds, "connections"_a = c.connections,
                  "refused"_a = c.refused, **kernel_counts(c.kernel));
}

// What is of one moment.
py::dict standing_of(PyPolicyServer& of) {
  using namespace pybind11::literals;
  ModeCounts counts;
  std::uint64_t updates = 0, leased = 0, unfinished = 0;
  std::string failure;
  {
    const py::gil_scoped_release release;
    of.server.quiet([&](PolicyService& service) {
      ParameterServer& server = service.server();
      counts = server.counts();
      updates = server.holder().pull().t();
      leased = server.examples_leased();
      for (const modes::Lease& lease : server.unfinished()) unfinished += lease.count;
      const PolicyService::Counters counted = service.counters();
      counts.lost = counted.lost;
      counts.departures = counted.departures;
      failure = service.failure();
    });
  }
  py::dict all("updates"_a = updates, "done"_a = leased - unfinished, "missing"_a = counts.missing,
               "failure"_a = failure);
  add_counts(all, std::move(counts));
  return all;
}

py::dict counters_of_trainer(const ModeTrainer& trainer) {
  using namespace pybind11::literals;
  const ModeTrainer::Counters c = trainer.counters();
  return py::dict("grants"_a = c.grants, "pushes"_a = c.pushes, "cut"_a = c.cut, "hung"_a = c.hung,
                  "strange"_a = c.strange, "left_out"_a = c.left_out, "examples"_a = c.examples,
                  "bytes_out"_a = c.traffic.out, "bytes_in"_a = c.traffic.in,
                  **kernel_counts(c.kernel));
}

}  // namespace

void bind_mode_servers(py::module_& m) {
  m.def(
      "mode_terms",
      [](std::uint64_t model, std::size_t dimension, const PyChoice& mode, const PyChoice& rule,
         const PyChoice& staleness) {
        return mode_terms(model, dimension, to_choice(mode), to_choice(rule), to_choice(staleness));
      },
      py::arg("model"), py::arg("dimension"), py::arg("mode"), py::arg("rule"),
      py::arg("staleness"), "A digest of what a policy server and its trainers must have alike.");

  py::class_<PyPolicyServer>(m, "PolicyServer", "Leads a mode; a thread serves its workers.")
      .def(
          py::init([](const FloatArray& theta, std::vector<std::size_t> block_ends,
                      const PyChoice& mode, const PyChoice& rule, const PyChoice& staleness,
                      std::size_t workers, std::uint64_t run, std::uint64_t terms,
                      std::uint64_t boot) {
            require_some(workers, "workers");
            return std::make_unique<PyPolicyServer>(theta, std::move(block_ends), mode, rule,
                                                    staleness, workers,
                                                    PolicyService::Run{run, terms, boot});
          }),
          py::kw_only(), py::arg("theta").noconvert(), py::arg("block_ends"), py::arg("mode"),
          py::arg("rule"), py::arg("staleness"), py::arg("workers"), py::arg("run"),
          py::arg("terms"), py::arg("boot"),
          "theta: to begin with, float32 [d]; block_ends: where its variables end. workers: lanes "
          "that may come. run, terms: as trainers have them; boot: a number that no other server's "
          "process ever has.")
      .def(
          "adopt",
          [](PyPolicyServer& of, int socket, bool checked, const std::string& transport) {
            const py::gil_scoped_release release;
            taking(socket, [&](int s) { of.server.adopt(s, checked, to_transport(transport)); });
          },
          py::arg("socket"), py::arg("checked"), py::arg("transport") = "tcp",
          "transport: tcp, shm or auto; with another than tcp it waits for the other side.")
      .def("counters", &counters_of_server,
           "What was counted; kernel_in and kernel_out, where all went over TCP.")
      .def(
          "standing", &standing_of,
          "Updates, examples of leases that are done, what the mode has decided, and why it serves "
          "nobody any more (empty: it does), all of one moment.")
      .def(
          "command",
          [](PyPolicyServer& of, std::uint32_t argument) {
            const py::gil_scoped_release release;
            of.server.quiet([&](PolicyService& service) { service.command(argument); });
          },
          py::arg("argument"), "Tells the mode, as its commands say.")
      .def(
          "let_go",
          [](PyPolicyServer& of, std::uint64_t first, std::uint64_t clients) {
            const py::gil_scoped_release release;
            of.server.quiet([&](PolicyService& service) { service.let_go(first, clients); });
          },
          py::arg("first"), py::arg("clients"),
          "Of a process that is gone or hangs, by its lanes' numbers: others have its leases.")
      .def_property_readonly(
          "parameters",
          [](PyPolicyServer& of) {
            std::vector<float> theta;
            {
              const py::gil_scoped_release release;
              of.server.quiet([&](PolicyService& service) {
                const ParameterVector::Pin latest = service.server().holder().pull();
                const std::size_t dimension = service.server().holder().dimension();
                theta.assign(latest.data(), latest.data() + dimension);
              });
            }
            return to_array(std::move(theta));
          },
          "A copy, float32 [d].");

  py::class_<ModeTrainer, std::shared_ptr<ModeTrainer>> trainer(
      m, "ModeTrainer", "A trainer of a mode that a policy server leads.");
  bind_connections(trainer);
  trainer
      .def(
          py::init([](std::size_t dimension, std::size_t lanes, std::uint64_t run,
                      std::uint64_t terms, std::uint64_t client, std::uint64_t life,
                      double patience) {
            require_some(lanes, "lanes");
            return std::make_shared<ModeTrainer>(
                dimension, lanes, ModeTrainer::Settings{run, terms, client, life, patience});
          }),
          py::kw_only(), py::arg("dimension"), py::arg("lanes"), py::arg("run"), py::arg("terms"),
          py::arg("client"), py::arg("life"), py::arg("patience"),
          "lanes: worker threads. client: the first one's number, behind which are as many others' "
          "as there are slots; life: a number that no other process ever has, and none before it a "
          "larger one. patience: seconds for which the server is waited for.")
      .def("end", &ModeTrainer::end, py::call_guard<py::gil_scoped_release>(),
           "The run is over for this trainer: what waits for the server waits no more.")
      .def_property_readonly("ended", &ModeTrainer::ended,
                             "Whether the server has said that all is trained.")
      .def("counters", &counters_of_trainer,
           "What was counted; kernel_in and kernel_out, where all went over TCP.");
}

}  // namespace leashed
