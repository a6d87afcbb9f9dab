// A training among others: batch numbers that are leased, sync servers, the trainers' side of
// synchronisation. Descriptors are taken over from Python's sockets, proven by then; whether that
// succeeds or not, Python has them no more.
#include <algorithm>
#include <deque>
#include <exception>
#include <future>

#include "choice.h"
#include "data.h"
#include "given_collective.h"
#include "leashed/base/descriptor.h"
#include "leashed/cluster/direct_collective.h"
#include "leashed/cluster/profile.h"
#include "leashed/cluster/ring_collective.h"
#include "leashed/cluster/sync_server.h"
#include "leashed/cluster/trainer_sync.h"
#include "leashed/engine/leases.h"
#include "leashed/net/pulse.h"
#include "mixing.h"
#include "pacing.h"
#include "parts.h"
#include "read.h"
#include "transports.h"

namespace leashed {
namespace {

// Both at once: each waits for the neighbour, who waits for its own.
std::unique_ptr<Collective> ring_of(std::size_t rank, std::size_t members, int previous, int next,
                                    bool checked, Transport wish) {
  Descriptor from(previous), to(next);
  const auto side = [checked, wish](Descriptor& socket, Role role) {
    auto connection = connected(socket.get(), kRingLimits, checked, wish, role);
    socket.take();
    return connection;
  };
  auto behind = std::async(std::launch::async, [&] { return side(from, Role::accepts); });
  std::unique_ptr<Connection> ahead;
  std::exception_ptr error;
  try {
    ahead = side(to, Role::offers);
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_ptr<Connection> before = behind.get();
  if (error) std::rethrow_exception(error);
  return std::make_unique<RingCollective>(std::move(before), std::move(ahead), rank, members);
}

// One after the other, in the order of pairs of ranks, which is the same for all.
std::unique_ptr<Collective> direct_of(std::size_t rank, const std::vector<int>& sockets,
                                      bool checked, Transport wish) {
  std::deque<Descriptor> ours;
  for (const int socket : sockets) ours.emplace_back(socket);
  std::vector<std::unique_ptr<Connection>> connections(sockets.size());
  for (std::size_t member = 0; member < sockets.size(); ++member) {
    if (member == rank) continue;
    connections[member] = connected(ours[member].get(), kRingLimits, checked, wish,
                                    member > rank ? Role::offers : Role::accepts);
    ours[member].take();
  }
  return std::make_unique<DirectCollective>(rank, std::move(connections));
}

// theta and others as arrays of the call's own, of which theta is read back. The function may be
// let go of by any thread.
CustomMix custom_of(const py::object& given) {
  if (given.is_none()) return {};
  const std::shared_ptr<py::object> held(new py::object(given), [](py::object* last) {
    const py::gil_scoped_acquire acquire;
    delete last;
  });
  return [held](float* theta, const float* other, std::size_t dimension, std::uint32_t n) {
    const py::gil_scoped_acquire acquire;
    const Mixing mixing;
    const py::object& function = *held;
    const auto d = static_cast<py::ssize_t>(dimension);
    py::array_t<float> changed(d, theta), others(d, other);
    make_read_only(others);
    function(changed, others, n);
    std::copy_n(changed.data(), dimension, theta);
  };
}

SyncPlan plan_of(const PyChoice& machine, const std::string& pace,
                 std::vector<std::uint64_t> starts, std::vector<double> gaps, std::size_t dimension,
                 std::vector<std::uint32_t> owner, std::size_t servers, std::size_t parts,
                 double timeout, const py::object& custom, const std::string& compression,
                 bool goes_on, std::vector<float> states, std::vector<WithinGap> within) {
  require_some(dimension, "dimension");
  require_some(parts, "parts");
  return {make_synchroniser(to_choice(machine)),
          pace_of(pace, std::move(starts), std::move(gaps)),
          dimension,
          std::move(owner),
          servers,
          parts,
          timeout,
          custom_of(custom),
          codec_of(compression),
          goes_on,
          std::move(states),
          std::move(within)};
}

using DoubleArray = py::array_t<double, py::array::c_style>;
constexpr std::size_t kWithin = 4;  // numbers of a worker

std::vector<WithinGap> within_of(const std::optional<DoubleArray>& given) {
  std::vector<WithinGap> found;
  if (!given) return found;
  if (given->ndim() != 2 || given->shape(1) != kWithin) {
    throw py::value_error("within must have shape [workers, 4]");
  }
  const auto counts = [](double each) { return each >= 0 && each <= 1e15; };
  if (!std::all_of(given->data(), given->data() + given->size(), counts)) {
    throw py::value_error("within must be numbers from 0 to 1e15");
  }
  for (const double* of = given->data(); of < given->data() + given->size(); of += kWithin) {
    found.push_back({static_cast<std::uint64_t>(of[0]), static_cast<std::uint64_t>(of[1]), of[2],
                     static_cast<std::uint64_t>(of[3])});
  }
  return found;
}

py::dict counters_of(TrainerSync& sync) {
  using namespace pybind11::literals;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const RoundCounters& c = sync.counters();
  const WireSum traffic = sync.traffic();
  const Transfers transfers = sync.transfers();
  return py::dict("syncs"_a = c.rounds.load(kRelaxed), "failed"_a = c.failed.load(kRelaxed),
                  "partial"_a = c.partial.load(kRelaxed), "lag"_a = sync.lag(),
                  "not_finite"_a = sync.not_finite(),
                  "seconds"_a = static_cast<double>(c.nanoseconds.load(kRelaxed)) * 1e-9,
                  "floats"_a = c.floats.load(kRelaxed), "bytes_out"_a = traffic.own.out,
                  "bytes_in"_a = traffic.own.in, "transfers_out"_a = transfers.out,
                  "transfers_in"_a = transfers.in, **kernel_counts(traffic.kernel));
}

}  // namespace

void bind_cluster(py::module_& m) {
  m.attr("FRAGMENT") = kFragment;

  py::class_<Leases, std::shared_ptr<Leases>>(
      m, "Leases", "Batch numbers that a training is handed while it runs.")
      .def(py::init<>())
      .def(
          "give",
          [](Leases& leases, std::uint64_t ticket, std::uint64_t first, std::uint64_t count) {
            leases.give({ticket, first, count});
          },
          py::arg("ticket"), py::arg("first"), py::arg("count"),
          "Batches [first, first + count) are this training's.")
      .def("revoke", &Leases::revoke, "Takes back what is not claimed.")
      .def("astray", &Leases::astray,
           "Batches used of what was taken back, before or since, that used() had not told.")
      .def("end", &Leases::end, py::arg("beyond"),
           "No more will come; the whole run has batches [0, beyond).")
      .def("used", &Leases::used,
           "(ticket, batches used without a gap) of each lease of which that has changed.")
      .def("apart", &Leases::apart,
           "(ticket, first from the lease's first, count) of those used behind one that is not.")
      .def("left", &Leases::left, "Batches given and not claimed.")
      .def_property_readonly("resting", &Leases::resting,
                             "Workers that wait for batches, having done all of their steps.")
      .def("use", &Leases::use, py::arg("place"), "Training on the one claimed there is over.");

  py::class_<Pulse>(m, "Pulse", "Sends a connection's messages, and beats while nobody does.")
      .def(py::init([](int socket, const py::bytes& beat, double longest) {
             return std::make_unique<Pulse>(socket, std::string_view(beat), longest);
           }),
           py::arg("socket"), py::arg("beat"), py::arg("longest"),
           "socket stays the caller's, and open until close(); nobody else sends on it. longest: "
           "seconds after a message for which beats go at most.")
      .def(
          "send",
          [](Pulse& pulse, const py::bytes& message, double seconds, double again) {
            const std::string_view bytes(message);
            const py::gil_scoped_release release;
            return pulse.send(bytes, seconds, again);
          },
          py::arg("message"), py::arg("seconds"), py::arg("again"),
          "From then on beats go whenever nothing was sent for `again` seconds. False: it did not "
          "go in time, and nothing more does. True where the connection has ended: reading tells.")
      .def("close", &Pulse::close, py::call_guard<py::gil_scoped_release>(), "No more beats.");

  py::class_<SyncServer>(m, "SyncServer", "Holds fragments of w^PS; a thread serves trainers.")
      .def(py::init([](const std::vector<std::pair<std::uint32_t, std::size_t>>& fragments) {
             std::vector<SyncServer::Holding> holdings;
             for (const auto& [fragment, length] : fragments) {
               holdings.push_back({fragment, length});
             }
             return std::make_unique<SyncServer>(holdings);
           }),
           py::arg("fragments"), "fragments: (index, length in floats) of each.")
      .def(
          "adopt",
          [](SyncServer& server, int socket, bool checked, const std::string& transport) {
            const py::gil_scoped_release release;
            taking(socket, [&](int s) { server.adopt(s, checked, to_transport(transport)); });
          },
          py::arg("socket"), py::arg("checked"), py::arg("transport") = "tcp",
          "transport: tcp, shm or auto; with another than tcp it waits for the other side.")
      .def(
          "counters",
          [](const SyncServer& server) {
            using namespace pybind11::literals;
            const SyncServer::Counters c = server.counters();
            return py::dict("exchanges"_a = c.exchanges, "changes"_a = c.changes,
                            "bytes_in"_a = c.traffic.in, "bytes_out"_a = c.traffic.out,
                            "serving_seconds"_a = c.seconds, "connections"_a = c.connections,
                            "refused"_a = c.refused, "not_finite"_a = c.not_finite,
                            **kernel_counts(c.kernel));
          },
          "What was counted; kernel_in and kernel_out, where all went over TCP.")
      .def(
          "snapshot",
          [](const SyncServer& server) {
            SyncServer::Snapshot s;
            {
              const py::gil_scoped_release release;
              s = server.snapshot();
            }
            return py::make_tuple(to_array(std::move(s.values)), std::move(s.present), s.changes);
          },
          "(values of all fragments, which are there, changes that are in them).")
      .def(
          "restore",
          [](SyncServer& server, const FloatArray& values, std::vector<bool> present,
             std::uint64_t changes) {
            server.restore({std::vector<float>(values.data(), values.data() + values.size()),
                            std::move(present), changes});
          },
          py::arg("values").noconvert(), py::arg("present"), py::arg("changes"));

  m.def(
      "profile_exchange",
      [](int here, int there, const std::string& transport, std::size_t floats) {
        Descriptor client(here), serving(there);
        require_some(floats, "floats");
        const py::gil_scoped_release release;
        return profile_exchange(client.take(), serving.take(), to_transport(transport), floats);
      },
      py::arg("here"), py::arg("there"), py::arg("transport"), py::arg("floats"),
      "Seconds of a sync server's processor time for one exchange of a fragment, over the two ends "
      "of "
      "a connection.");

  py::class_<TrainerSync, std::shared_ptr<TrainerSync>> sync(
      m, "TrainerSync", "A trainer's synchronisation with others.");
  bind_connections(sync);
  sync.def(
          py::init([](const PyChoice& machine, const std::string& pace,
                      std::vector<std::uint64_t> starts, std::vector<double> gaps,
                      std::size_t dimension, std::vector<std::uint32_t> owner, std::size_t servers,
                      std::size_t parts, double timeout, const py::object& custom,
                      std::size_t workers, const std::string& compression, bool goes_on,
                      const std::optional<FloatArray>& states,
                      const std::optional<DoubleArray>& within) {
            require_some(workers, "workers");
            return make_trainer_sync(
                plan_of(machine, pace, std::move(starts), std::move(gaps), dimension,
                        std::move(owner), servers, parts, timeout, custom, compression, goes_on,
                        states ? std::vector<float>(states->data(), states->data() + states->size())
                               : std::vector<float>(),
                        within_of(within)),
                workers);
          }),
          py::kw_only(), py::arg("machine"), py::arg("pace"), py::arg("starts"), py::arg("gaps"),
          py::arg("dimension"), py::arg("owner"), py::arg("servers"), py::arg("parts"),
          py::arg("timeout"), py::arg("custom"), py::arg("workers"),
          py::arg("compression") = "none", py::arg("goes_on") = false,
          py::arg("states").noconvert() = py::none(), py::arg("within").noconvert() = py::none(),
          "goes_on: theta is as the servers know it, and stays as it is. states, within: of "
          "another, "
          "at rest.")
      .def("hold", &TrainerSync::hold, py::arg("holds"),
           "While all workers wait: nothing is exchanged with servers, or is again.")
      .def_property_readonly("at_rest", &TrainerSync::at_rest,
                             "Of workers that all wait: whether nothing is under way.")
      .def_property_readonly(
          "states",
          [](TrainerSync& sync) {
            const std::span<const float> states = sync.states();
            return py::array_t<float>(static_cast<py::ssize_t>(states.size()), states.data());
          },
          "Of one at rest, float32: what trainers that sum have together beside theta, w^global "
          "and "
          "its velocity, one behind the other.")
      .def_property_readonly(
          "within",
          [](TrainerSync& sync) {
            const std::vector<WithinGap> found = sync.within();
            py::array_t<double> all(
                {static_cast<py::ssize_t>(found.size()), static_cast<py::ssize_t>(kWithin)});
            double* to = all.mutable_data();
            for (const WithinGap& of : found) {
              *to++ = static_cast<double>(of.iterations);
              *to++ = static_cast<double>(of.since);
              *to++ = of.seconds;
              *to++ = static_cast<double>(of.turn);
            }
            return all;
          },
          "Likewise, of each worker that synchronises by itself: its iterations, those since its "
          "last round, seconds since then, whose turn it is of the parts; float64 [workers, 4]. In "
          "the background with servers the turn alone, float64 [1, 4].")
      .def(
          "form",
          [](TrainerSync& sync, std::uint64_t epoch, std::size_t rank, std::vector<bool> fresh,
             int previous, int next, bool checked, const std::string& transport) {
            RingGroup::Ring ring{epoch, rank, std::move(fresh), nullptr};
            const py::gil_scoped_release release;
            if (const std::size_t members = ring.fresh.size(); members > 1) {
              ring.collective =
                  ring_of(rank, members, previous, next, checked, to_transport(transport));
            }
            sync.ring().form(std::move(ring));
          },
          py::arg("epoch"), py::arg("rank"), py::arg("fresh"), py::arg("previous"), py::arg("next"),
          py::arg("checked"), py::arg("transport") = "tcp",
          "A later ring to change over to; of one member, without sockets.")
      .def(
          "form_direct",
          [](TrainerSync& sync, std::uint64_t epoch, std::size_t rank, std::vector<bool> fresh,
             const std::vector<int>& sockets, bool checked, const std::string& transport) {
            RingGroup::Ring ring{epoch, rank, std::move(fresh), nullptr};
            const py::gil_scoped_release release;
            ring.collective = direct_of(rank, sockets, checked, to_transport(transport));
            sync.ring().form(std::move(ring));
          },
          py::arg("epoch"), py::arg("rank"), py::arg("fresh"), py::arg("sockets"),
          py::arg("checked"), py::arg("transport") = "tcp",
          "The same, of several members that are all connected with each other: the sockets by "
          "rank, of this one -1.")
      .def(
          "form_over",
          [](TrainerSync& sync, std::uint64_t epoch, std::size_t rank, std::vector<bool> fresh,
             py::object collective) {
            RingGroup::Ring ring{epoch, rank, std::move(fresh),
                                 std::make_unique<GivenCollective>(std::move(collective))};
            const py::gil_scoped_release release;
            sync.ring().form(std::move(ring));
          },
          py::arg("epoch"), py::arg("rank"), py::arg("fresh"), py::arg("collective"),
          "The same, of several members that sum with what is given: leashed.cluster.meeting has "
          "what it offers.")
      .def_property_readonly(
          "ended", [](TrainerSync& sync) { return sync.ring().ended(); },
          "The epoch whose ring has ended here; a later one is wanted.")
      .def_property_readonly(
          "broken", [](TrainerSync& sync) { return sync.ring().broken(); },
          "The newest epoch of which a round has broken here.")
      .def_property_readonly(
          "left", [](TrainerSync& sync) { return sync.ring().has_left(); },
          "Whether this trainer wants to be in no ring any more, and is in none.")
      .def_property_readonly(
          "workers_ended", &TrainerSync::workers_ended,
          "Whether there is nothing more to train: not where workers come and go.")
      .def_property_readonly(
          "settled", [](TrainerSync& sync) { return sync.ring().settled(); },
          "The epoch in which this trainer last was in a round with the others.")
      .def("counters", &counters_of,
           "What was counted; kernel_in and kernel_out, where all went over TCP.");
}

}  // namespace leashed
