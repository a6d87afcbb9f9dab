// Modes over several processes: the policy server that leads one, and a trainer of it.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "choice.h"
#include "data.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/table/saving.h"
#include "leashed/update/registry.h"
#include "mode_counts.h"
#include "mode_taken.h"
#include "parts.h"
#include "shards.h"
#include "signals.h"
#include "transports.h"

namespace leashed {
namespace {

using PyTables = std::vector<std::shared_ptr<SavedTable>>;
using PyServedTable = std::tuple<std::string, std::size_t, std::uint64_t>;
// The file, its header, and of several servers all parameters, what each has of them, and of each
// table which one has all of its rows, or 2³² − 1.
using PyRecord = std::tuple<std::string, std::string, std::optional<FloatArray>,
                            std::vector<PySpans>, std::vector<std::uint32_t>>;

// Writes down what a policy server hears, until it is told to end.
class Record {
 public:
  Record(const PyRecord& to, const FloatArray& theta)
      : Record(to, std::get<2>(to) ? *std::get<2>(to) : theta, nullptr) {}

  // By the thread that serves. Behind updates that are lost there is no more to record: workers
  // begin with parameters of before.
  void heard(const modes::Event& event, Time at) {
    if (!over()) recorder_.heard(event, at);
  }
  void noted(modes::Node node, LogLine::Note note) {
    if (!over()) recorder_.noted(node, note);
  }
  // Of that one, which stays, where workers sum among themselves.
  void follows(const PolicyService& service) { sums_ = &service; }
  // While nobody is served. rows: of tables; null: there are none. Returns why the record ended
  // before; empty: it did not. waits: nothing, and the record goes on, where not all servers have
  // said what they had of it.
  std::optional<std::string> end(PolicyService& service, const RowHolder* rows, bool waits) {
    if (over()) return lost_.empty() ? writer_.failure() : lost_;
    // (Without an end of all of them it is as of servers that were killed.)
    const bool known = sharding_.shards.size() == 1 || service.ends_known();
    if (!known && waits) return std::nullopt;
    ended_ = true;
    if (service.server().reduced() > 0) {
      return "the parameters of its last " + std::to_string(service.server().reduced()) +
             " updates have not come from the workers";
    }
    if (!known) {
      return "not all policy servers have said what they had of it, so parts of pushes that did "
             "not come to one of them are in it as if they had";
    }
    Digests digests = digests_of(rows);
    std::uint64_t t = 0;
    std::vector<float> theta(dimension_);
    {
      const ParameterVector::Pin latest = service.server().holder().pull();
      t = latest.t();
      scatter(0, latest.data(), theta);
    }
    std::uint32_t server = 0;
    for (const PartEnd& end : service.take_ends()) {
      ++server;
      if (end.missed.size() > kMostMissed) {
        return "more parts of pushes did not come to one of several policy servers than a record "
               "has room for";
      }
      for (const std::uint64_t line : end.missed) recorder_.missed(server, line);
      t = std::min(t, end.updates);
      if (end.theta.size() != sharding_.size(server)) throw Error("another part than there is");
      scatter(server, end.theta.data(), theta);
      add(digests, server, end.digests);
    }
    writer_.finish(t, theta, digests);
    return writer_.failure();
  }

 private:
  using Digests = std::vector<std::uint64_t>;  // two numbers of each table

  bool over() {
    const std::uint64_t lost = sums_ && !ended_ ? sums_->counters().rounds.lost_updates : 0;
    if (lost > 0) {
      ended_ = true;
      lost_ = "updates were lost with all workers that had them, and it has what was before that";
    }
    return ended_;
  }

  Record(const PyRecord& to, const FloatArray& theta, std::nullptr_t)
      : dimension_(static_cast<std::size_t>(theta.size())),
        sharding_(to_sharding(std::get<3>(to), dimension_)),
        servers_of_tables_(std::get<4>(to)),
        writer_(std::get<0>(to), std::get<1>(to), {theta.data(), theta.data() + theta.size()}, 1,
                0) {}

  void scatter(std::size_t server, const float* part, std::vector<float>& all) const {
    for (const ShardSpan& span : sharding_.shards[server]) {
      std::copy_n(part, span.end - span.begin, all.data() + span.begin);
      part += span.end - span.begin;
    }
  }
  Digests digests_of(const RowHolder* rows) const {
    Digests its;
    for (const auto& table : rows ? rows->tables() : std::vector<std::shared_ptr<Table>>()) {
      const Table::Digest one = table->digest([watch = SignalWatch()]() mutable { watch(); });
      its.insert(its.end(), one.begin(), one.end());
    }
    if (servers_of_tables_.empty()) return its;
    Digests all(2 * servers_of_tables_.size());
    add(all, 0, its);
    return all;
  }
  // Those of a server's tables, which are a part of each that it has rows of.
  void add(Digests& to, std::size_t server, const Digests& its) const {
    std::size_t next = 0;
    for (std::size_t t = 0; t < servers_of_tables_.size(); ++t) {
      const std::uint32_t of = servers_of_tables_[t];
      if (of != RowPlacement::kSpread && of != server) continue;
      if (next + 2 > its.size()) throw Error("digests of other tables than there are");
      to[2 * t] += its[next++];
      to[2 * t + 1] += its[next++];
    }
  }

  const std::size_t dimension_;
  const Sharding sharding_;
  const std::vector<std::uint32_t> servers_of_tables_;
  TraceWriter writer_;
  ModeRecorder recorder_{writer_};
  const PolicyService* sums_ = nullptr;  // null: workers do not
  bool ended_ = false;
  std::string lost_;  // why it ended before
};

// A server with what it is made from.
struct PyPolicyServer {
  PyPolicyServer(const FloatArray& theta, std::vector<std::size_t> block_ends, const PyChoice& mode,
                 const PyChoice& rule_of, const PyChoice& staleness_of, std::size_t workers,
                 PolicyService::Run run, const std::optional<PyRecord>& recording,
                 const std::optional<PyBegun>& from, const PyTables& tables,
                 const std::optional<PyWords>& served, std::optional<PyWords> ever_told,
                 const std::optional<std::string>& journal_path, std::uint64_t line)
      : ever(std::move(ever_told)),
        rule(make_rule(to_choice(rule_of), workers)),
        staleness(make_staleness(to_choice(staleness_of))),
        record(recording ? std::make_unique<Record>(*recording, theta) : nullptr) {
    if (!tables.empty()) {
      rows.emplace(std::vector<std::shared_ptr<Table>>(tables.begin(), tables.end()),
                   std::vector<std::size_t>(), from ? from->first.position.updates : 0);
    }
    RowHolder* const held = rows ? &*rows : nullptr;
    if (ever) run.ever = {ever->mutable_data(), 2};
    run.holds_end = ever.has_value();
    if (journal_path) {
      const py::gil_scoped_release release;  // it may be long, and others are to be told of it
      run.journal = &journal.emplace(*journal_path, run.again > 0);
    }
    const std::size_t nodes = from ? from->second : workers;
    DisciplineContext context{
        theta.data(),         static_cast<std::size_t>(theta.size()), nodes, 1, *rule, *staleness,
        std::move(block_ends)};
    const modes::ServerPolicy machine = modes::make_server_policy(to_choice(mode));
    const auto make = [&](const PolicyService::Begun* begun) {
      const py::gil_scoped_release release;  // likewise
      server.emplace(machine, context, run, heard(), noted(), begun, held);
      if (!record || !run.reduces) return;
      server->quiet([&](PolicyService& service) { record->follows(service); });
    };
    if (!from) {
      make(nullptr);
      return;
    }
    require_some(nodes, "nodes");
    const Checkpoint& begins = from->first;
    const Layout layout = Updater(context).layout();
    require_fit(begins, layout, context.sparse);
    const Resumed resumed(begins, layout, *staleness, context);
    Archived as_then;
    if (served) as_then.words.assign(served->data(), served->data() + served->size());
    const PolicyService::Begun begun{begins.mode, workers, false, served ? &as_then : nullptr,
                                     line};
    make(&begun);
  }

  PolicyService::Heard heard() {
    if (!record) return nullptr;
    return [to = record.get()](const modes::Event& event, Time at) { to->heard(event, at); };
  }
  PolicyService::Noted noted() {
    if (!record) return nullptr;
    return [to = record.get()](modes::Node node, LogLine::Note note) { to->noted(node, note); };
  }

  std::optional<PyWords> ever;  // which the server writes to
  const std::unique_ptr<const Rule> rule;
  const std::unique_ptr<const StalenessPolicy> staleness;
  const std::unique_ptr<Record> record;  // null: there is none
  std::optional<RowHolder> rows;         // of tables; nothing: it has none
  std::optional<Journal> journal;        // nothing: it has none
  std::optional<PolicyServer> server;    // always
};

py::dict counters_of_server(const PyPolicyServer& of) {
  using namespace pybind11::literals;
  const PolicyServer::Counters c = of.server->counters();
  return py::dict("pulls"_a = c.pulls, "grants"_a = c.grants, "pushes"_a = c.pushes,
                  "pushed_examples"_a = c.pushed_examples, "summed"_a = c.summed,
                  "summed_examples"_a = c.summed_examples, "not_finite"_a = c.not_finite,
                  "strange"_a = c.strange, "replaced"_a = c.replaced, "departures"_a = c.departures,
                  "lost"_a = c.lost, "unused"_a = c.unused, "lanes"_a = c.lanes,
                  "looks"_a = c.looks, "commands"_a = c.commands, "published"_a = c.published,
                  "staleness"_a = c.staleness, "payload_bytes"_a = c.payload_bytes,
                  "lookups"_a = c.lookups, "reads"_a = c.reads, "looked_up"_a = c.looked_up,
                  "row_moved"_a = c.rows_moved.bytes, "row_least"_a = c.rows_moved.least,
                  "bytes_in"_a = c.traffic.in, "bytes_out"_a = c.traffic.out,
                  "serving_seconds"_a = c.seconds, "connections"_a = c.connections,
                  "refused"_a = c.refused, "rounds"_a = c.rounds.rounds,
                  "reduced"_a = c.rounds.updates, "homes"_a = c.rounds.homes,
                  "lost_updates"_a = c.rounds.lost_updates,
                  "lost_examples"_a = c.rounds.lost_examples, **kernel_counts(c.kernel));
}

// While nobody is served.
PyTaken take_of(PyPolicyServer& of, PolicyService& service, std::vector<DueEvent> due,
                std::size_t batch_size) {
  TakenMode found = service.take(std::move(due));
  found.state.position.batches = service.server().examples_leased() / batch_size;
  return taken_from(service, std::move(found), of.rows ? &*of.rows : nullptr);
}

// What is of one moment.
py::dict standing_of(PyPolicyServer& of) {
  using namespace pybind11::literals;
  ModeCounts counts;
  std::uint64_t updates = 0, reduced = 0, leased = 0, unfinished = 0;
  std::string failure, unwritten;
  std::int64_t elapsed = 0, since = 0;
  std::uint32_t told = 0;
  {
    const py::gil_scoped_release release;
    of.server->quiet([&](PolicyService& service) {
      ParameterServer& server = service.server();
      counts = server.counts();
      updates = server.updates();
      reduced = server.reduced();
      leased = server.examples_leased();
      for (const modes::Lease& lease : server.unfinished()) unfinished += lease.count;
      const PolicyService::Counters counted = service.counters();
      counts.lost = counted.lost;
      counts.departures = counted.departures;
      failure = service.failure();
      if (service.journal()) unwritten = service.journal()->failure();
      elapsed = service.elapsed();
      since = service.heard_since();
      told = service.last_command();
    });
  }
  py::dict all("updates"_a = updates, "reduced"_a = reduced, "done"_a = leased - unfinished,
               "missing"_a = counts.missing, "failure"_a = failure, "unwritten"_a = unwritten,
               "elapsed"_a = 1e-9 * static_cast<double>(elapsed),
               "since"_a = 1e-9 * static_cast<double>(since), "told"_a = told);
  add_counts(all, std::move(counts));
  return all;
}

py::dict counters_of_trainer(const ModeTrainer& trainer) {
  using namespace pybind11::literals;
  const ModeTrainer::Counters c = trainer.counters();
  return py::dict("grants"_a = c.grants, "pushes"_a = c.pushes, "cut"_a = c.cut, "hung"_a = c.hung,
                  "strange"_a = c.strange, "left_out"_a = c.left_out, "split"_a = c.split,
                  "examples"_a = c.examples, "lookups"_a = c.lookups, "bytes_out"_a = c.traffic.out,
                  "bytes_in"_a = c.traffic.in, **kernel_counts(c.kernel));
}

}  // namespace

void bind_mode_servers(py::module_& m) {
  m.attr("MOST_MEMBERS") = kMostMembers;
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
                      std::uint64_t boot, const std::optional<PyRecord>& record,
                      const std::optional<PyBegun>& begun, const PyTables& tables,
                      std::size_t followers, bool reduces, std::optional<std::uint64_t> updates,
                      const std::optional<PyWords>& served, const std::optional<PyWords>& ever,
                      const std::optional<std::string>& journal, std::uint64_t line,
                      std::uint64_t again, const std::vector<PySpans>& shards) {
            require_some(workers, "workers");
            if (ever && ever->size() != 2) throw Error("ever must have 2 numbers");
            const bool alike = followers > 0 && deciding(mode.first) == Deciding::alike;
            PolicyService::Run its{
                run, terms, boot, followers, alike, reduces, updates.value_or(StopRules::kNone)};
            its.again = again;
            std::size_t dimension = 0;
            for (const PySpans& spans : shards) {
              for (const auto& [begin, end] : spans) dimension += end - begin;
            }
            if (!shards.empty()) its.shards = to_mode_shards(mode.first, shards, dimension);
            return std::make_unique<PyPolicyServer>(theta, std::move(block_ends), mode, rule,
                                                    staleness, workers, its, record, begun, tables,
                                                    served, ever, journal, line);
          }),
          py::kw_only(), py::arg("theta").noconvert(), py::arg("block_ends"), py::arg("mode"),
          py::arg("rule"), py::arg("staleness"), py::arg("workers"), py::arg("run"),
          py::arg("terms"), py::arg("boot"), py::arg("record") = py::none(),
          py::arg("begun") = py::none(), py::arg("tables") = PyTables(), py::arg("followers") = 0,
          py::arg("reduces") = false, py::arg("updates") = py::none(),
          py::arg("served") = py::none(), py::arg("ever").noconvert() = py::none(),
          py::arg("journal") = py::none(), py::arg("line") = 0, py::arg("again") = 0,
          py::arg("shards") = std::vector<PySpans>{},
          "theta: to begin with, float32 [d]; block_ends: where its variables end. workers: lanes "
          "that may come. run, terms: as trainers have them; boot: a number that no other server's "
          "process ever has. record: a file that what it hears is written to, its header, and of "
          "several servers all parameters, what each has of them, and of each table which one has "
          "all of its rows, or 2³² − 1. "
          "begun: to go on from, what take() of another one gave. tables: that gradients are of "
          "too, in the order of the model. followers: servers behind it, of several, of which each "
          "has a part of the parameters, as theta is one. reduces: while the mode is in Sync "
          "workers sum among themselves. updates: so many end the run. served: of one that is "
          "started again in its own run, beside begun what keep() gave, uint64. ever: pushes that "
          "the mode was ever told of, and their examples, uint64 [2], which it counts on; with it "
          "nobody is told the end before let_end(). journal: of the first of several, what the "
          "names "
          "of the files begin with to which all is written that it hears; line: of one that is "
          "started again, the first line that is not in begun, as keep() gave it; again: how many "
          "processes of it there were in its run before, of which the journal is then. shards: of "
          "several servers whose workers sum what each has of the parameters, as [begin, end).")
      .def(
          "adopt",
          [](PyPolicyServer& of, int socket, bool checked, const std::string& transport) {
            const py::gil_scoped_release release;
            taking(socket, [&](int s) { of.server->adopt(s, checked, to_transport(transport)); });
          },
          py::arg("socket"), py::arg("checked"), py::arg("transport") = "tcp",
          "transport: tcp, shm or auto; with another than tcp it waits for the other side.")
      .def("counters", &counters_of_server,
           "What was counted; kernel_in and kernel_out, where all went over TCP.")
      .def("standing", &standing_of,
           "Updates, and how many of them workers alone have, examples of leases that are done, "
           "what the mode has decided, and why it serves nobody any more (empty: it does), all of "
           "one moment.")
      .def(
          "hold",
          [](PyPolicyServer& of, bool holds) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PolicyService& service) { service.hold(holds); });
          },
          py::arg("holds"), "Whether what the mode grants goes to nobody.")
      .def_property_readonly(
          "at_rest",
          [](PyPolicyServer& of) {
            const py::gil_scoped_release release;
            bool rests = false;
            of.server->quiet([&](PolicyService& service) { rests = service.at_rest(); });
            return rests;
          },
          "That no worker has a lease, as far as it was told.")
      .def(
          "take",
          [](PyPolicyServer& of, const std::vector<std::pair<double, std::uint32_t>>& commands,
             std::size_t batch_size) {
            require_some(batch_size, "batch_size");
            const py::gil_scoped_release release;
            PyTaken taken;
            of.server->quiet([&](PolicyService& service) {
              const std::int64_t now = service.elapsed();
              std::vector<DueEvent> due;
              for (const auto& [seconds, argument] : commands) {
                const std::int64_t at = now + static_cast<std::int64_t>(1e9 * seconds);
                due.push_back({at, {.kind = modes::Event::Kind::command, .argument = argument}});
              }
              taken = take_of(of, service, std::move(due), batch_size);
            });
            return taken;
          },
          py::arg("commands"), py::arg("batch_size"),
          "While it holds and is at rest its state, how many nodes there are, which words of the "
          "mode's are of rows that it holds, [begin, end), by slot one more than the number of the "
          "batch that it holds, 0: of nothing, lines of the log of those behind it, by table "
          "floats from one gradient of a row to the next, the batches that are not done, as number "
          "and examples, and of one that follows those that it has had, as first and last number. "
          "commands: that are still to come, in so many seconds, "
          "and what they say.")
      .def(
          "keep",
          [](PyPolicyServer& of, std::size_t batch_size) {
            require_some(batch_size, "batch_size");
            PyTaken taken;
            std::vector<std::uint64_t> served;
            std::uint64_t line = 0;
            {
              const py::gil_scoped_release release;
              of.server->quiet([&](PolicyService& service) {
                served = service.served().words;
                line = service.cut_journal();
                taken = take_of(of, service, {}, batch_size);
              });
            }
            return std::tuple(std::move(taken), PyWords(py::ssize_t(served.size()), served.data()),
                              line);
          },
          py::arg("batch_size"),
          "At any moment at which workers alone have no updates what take() gives, and for one "
          "that "
          "is started again in the same run what it is to be given beside as served, and as line.")
      .def(
          "stay_home",
          [](PyPolicyServer& of, bool stays) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PolicyService& service) { service.stay_home(stays); });
          },
          py::arg("stays"), "Whether parameters that workers have come, and no round begins.")
      .def_property_readonly(
          "is_home",
          [](PyPolicyServer& of) {
            const py::gil_scoped_release release;
            bool home = false;
            of.server->quiet([&](PolicyService& service) { home = service.is_home(); });
            return home;
          },
          "That they have come, and stay where they are to.")
      .def(
          "kept",
          [](PyPolicyServer& of, std::uint64_t line) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PolicyService& service) { service.kept(line); });
          },
          py::arg("line"), "What goes before that line of the journal is kept.")
      .def(
          "sync_journal",
          [](PyPolicyServer& of) {
            const py::gil_scoped_release release;
            std::vector<int> unsynced;
            of.server->quiet([&](PolicyService& service) {
              if (service.journal()) unsynced = service.journal()->unsynced();
            });
            int error = 0;
            for (const int fd : unsynced) {
              const Descriptor one(fd);
              if (::fdatasync(fd) != 0) error = errno;
            }
            if (error == 0) return;
            of.server->quiet([&](PolicyService& service) { service.journal()->give_up(error); });
          },
          "What was written to the journal is to outlast a power cut; where that cannot be done it "
          "is given up.")
      .def(
          "let_end",
          [](PyPolicyServer& of) {
            const py::gil_scoped_release release;
            of.server->quiet([](PolicyService& service) { service.let_end(); });
          },
          "That all is trained is kept: whoever waits to hear of the end is told.")
      .def(
          "let_go_absent",
          [](PyPolicyServer& of) {
            const py::gil_scoped_release release;
            of.server->quiet([](PolicyService& service) { service.let_go_absent(); });
          },
          "Nodes of what it goes on from for which nobody has come are gone.")
      .def(
          "quiet",
          [](PyPolicyServer& of, const py::function& f) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PolicyService&) {
              const py::gil_scoped_acquire acquire;
              f();
            });
          },
          py::arg("f"), "Calls f() while nobody is served.")
      .def(
          "end_record",
          [](PyPolicyServer& of, bool waits) {
            const py::gil_scoped_release release;
            std::optional<std::string> why("");
            of.server->quiet([&](PolicyService& service) {
              if (of.record) why = of.record->end(service, of.rows ? &*of.rows : nullptr, waits);
            });
            return why;
          },
          py::arg("waits"),
          "The record ends here, with the parameters and rows of now. Returns why it ended before; "
          "empty: it did not, or there is none. waits: for servers behind it, which are asked what "
          "they have of what it has heard; None: not all have said it, and it goes on.")
      .def(
          "command",
          [](PyPolicyServer& of, std::uint32_t argument) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PolicyService& service) { service.command(argument); });
          },
          py::arg("argument"), "Tells the mode, as its commands say.")
      .def(
          "let_go",
          [](PyPolicyServer& of, std::uint64_t first, std::uint64_t clients) {
            const py::gil_scoped_release release;
            of.server->quiet([&](PolicyService& service) { service.let_go(first, clients); });
          },
          py::arg("first"), py::arg("clients"),
          "Of a process that is gone or hangs, by its lanes' numbers: others have its leases.")
      .def_property_readonly(
          "parameters",
          [](PyPolicyServer& of) {
            std::vector<float> theta;
            {
              const py::gil_scoped_release release;
              of.server->quiet([&](PolicyService& service) {
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
      .def(py::init([](std::size_t dimension, std::size_t lanes, std::uint64_t run,
                       std::uint64_t terms, std::uint64_t client, std::uint64_t life,
                       double patience, const std::vector<PyServedTable>& tables,
                       const std::string& mode, const std::vector<PySpans>& shards, bool reduces,
                       const std::optional<RowPlacement>& placement, std::size_t at_once) {
             require_some(lanes, "lanes");
             std::vector<ServedTable> served;
             for (const auto& [name, dim, rows] : tables) served.push_back({name, dim, rows});
             ModeTrainer::Settings settings{run, terms, client, life, patience};
             settings.reduces = reduces;
             settings.at_once = at_once;
             if (!shards.empty()) settings.shards = to_mode_shards(mode, shards, dimension);
             return std::make_shared<ModeTrainer>(dimension, lanes, settings, std::move(served),
                                                  placement);
           }),
           py::kw_only(), py::arg("dimension"), py::arg("lanes"), py::arg("run"), py::arg("terms"),
           py::arg("client"), py::arg("life"), py::arg("patience"),
           py::arg("tables") = std::vector<PyServedTable>(), py::arg("mode") = "",
           py::arg("shards") = std::vector<PySpans>{}, py::arg("reduces") = false,
           py::arg("placement") = py::none(), py::arg("at_once") = 0,
           "lanes: worker threads, of which at_once compute at once; 0: all. client: the first "
           "one's "
           "number, behind which are as many others' as there are slots; life: a number that no "
           "other process ever has, and none before it a "
           "larger one. patience: seconds for which the server is waited for. tables: "
           "(name, dim, rows, or 0 where it grows) of each whose rows the servers have; placement: "
           "of several servers which one has which. shards: of "
           "several servers what each has of the parameters, as [begin, end); mode: its name. "
           "reduces: as the server has it.")
      .def_property_readonly("wanted", &ModeTrainer::wanted,
                             "Of an all-reduce, (lane, client) of each other lane, by its number, "
                             "that is to be called.")
      .def(
          "adopt_sum",
          [](ModeTrainer& of, std::size_t lane, std::uint64_t client, int socket, bool checked,
             bool called, const std::string& transport) {
            const py::gil_scoped_release release;
            taking(socket, [&](int s) {
              of.adopt_sum(lane, client, s, checked, to_transport(transport),
                           called ? Role::offers : Role::accepts);
            });
          },
          py::arg("lane"), py::arg("client"), py::arg("socket"), py::arg("checked"),
          py::arg("called"), py::arg("transport") = "tcp",
          "The connection of a lane with another one; called: by this one.")
      .def("end", &ModeTrainer::end, py::call_guard<py::gil_scoped_release>(),
           "The run is over for this trainer: what waits for the server waits no more.")
      .def_property_readonly("ended", &ModeTrainer::ended,
                             "Whether the server has said that all is trained.")
      .def("counters", &counters_of_trainer,
           "What was counted; kernel_in and kernel_out, where all went over TCP.");
}

}  // namespace leashed
