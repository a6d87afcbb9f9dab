// What those who play a mode share (play_mode.cc): the servers, the workers and what each is at,
// what is to happen, and what is counted of all together.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "leashed/engine/telemetry.h"
#include "leashed/server/own_models.h"
#include "leashed/server/served_rows.h"
#include "leashed/server/shards.h"
#include "leashed/simulation/membership.h"
#include "leashed/simulation/played_data.h"
#include "leashed/simulation/simulate.h"
#include "leashed/simulation/timeline.h"
#include "leashed/simulation/virtual_clock.h"
#include "leashed/simulation/watch.h"

namespace leashed {

// In the order of one moment (policy/server_machine.h), evaluations last.
enum class ModeEvent : std::uint8_t {
  reach,   // of a push's first byte, the server's link
  come,    // of what one of several servers granted, the worker's
  arrive,  // all of it is at the server
  push,    // the server carries it out
  leave,
  crash,   // without a word
  missed,  // the server knows of a crash
  join,
  command,
  pull,
  wake,
  evaluate,
};

struct ModePlayer {
  // Of each shard.
  struct Part {
    std::uint64_t ticket = 0, version = 0;  // granted
    ParameterVector::Pin pulled;            // of a mode whose gradients are taken on it
    bool granted = false;                   // since it last began
    std::uint64_t bytes = 0;                // of it, over links, each way
    // Where there are several:
    std::optional<Grant> to_take;  // of an own model, until the parts of all are there
    AlignedArray<float> sent;      // of what is sent
    RowPush rows;
    bool coming = false;  // what is sent, and has not got there
  };
  std::vector<Part> parts;
  modes::Lease lease{};          // the first shard's
  modes::Lease sent{};           // which its push is for
  bool leased = false;           // and it has not begun
  std::size_t come = 0;          // parts of what it pulled that are there
  std::int64_t all_come = 0;     // when the last of them is
  std::size_t sent_off = 0;      // parts of its push that have not arrived yet
  std::size_t left = 0;          // and that are not carried out yet
  std::int64_t update_time = 0;  // of all servers together, for its push
  // Its own model when it began to compute, where a meeting has changed that since.
  std::vector<float> before;
  PulledRows rows;
  std::uint64_t drawn = 0, fetches = 0, updates = 0, transfers = 0;
  std::int64_t since = 0, computed = 0;  // began to compute, or to wait; has computed
  std::int64_t fetched = 0;              // has what it will compute on next
  std::int64_t meets_until = 0, away_since = 0;
  bool working = false;  // has a lease that it has not pushed for
  bool ended = false;
};

struct PlayedMode {
  PlayedMode(const GradientSource& model, const DatasetView& examples,
             const DatasetView* validation, const Choice& mode, const Sharding& sharding,
             const DisciplineContext& from, const SimulationOptions& chosen,
             const TrainCallbacks& callbacks)
      : source(model),
        context(from),
        options(chosen),
        rows(source, options.tables),
        shards(mode, context, sharding, rows.holder(), options.servers_of_tables),
        term_ns(static_cast<std::int64_t>(mode.value("term_ns", 0))),
        rule(shards[0].rule()),
        models(shards[0], context),
        compute(make_durations(options.compute, seed_of(options.seed, kCompute))),
        members(options.members, static_cast<std::uint32_t>(context.workers), options.seed),
        players(context.workers),
        watch(source, examples, validation, options.until, callbacks, rows.readers(),
              context.workers, Counting::Updates::by_server, options.observers),
        data(examples, options, watch),
        telemetry(watch.counting.of(0)) {
    for (ModePlayer& player : players) player.parts.resize(shards.size());
  }

  std::size_t dimension() const { return source.dimension(); }
  // Made to what the servers hold; of peers, to all models.
  std::uint64_t updates() { return shards[0].holds() ? shards.updates() : own_updates; }
  std::uint32_t steps_of(const ModePlayer& player) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(rule.local_steps, player.lease.count));
  }

  // Of what goes to one of several servers a moment's number says both, so that it sorts by worker.
  static bool of_shard(ModeEvent kind) {
    return kind <= ModeEvent::push || kind == ModeEvent::pull;
  }
  std::uint32_t worker_of(const Moment<ModeEvent>& moment) const {
    return of_shard(moment.kind) ? static_cast<std::uint32_t>(moment.worker / shards.size())
                                 : moment.worker;
  }
  std::size_t shard_of(const Moment<ModeEvent>& moment) const {
    return moment.worker % shards.size();
  }
  std::uint32_t part_of(std::uint32_t worker, std::size_t shard) const {
    return static_cast<std::uint32_t>(worker * shards.size() + shard);
  }

  // It does not happen where the worker is gone by then.
  void enter(std::int64_t ns, ModeEvent kind, std::uint32_t worker) {
    timeline.enter({ns, kind, worker, members.life(worker)});
  }
  void enter(std::int64_t ns, ModeEvent kind, std::uint32_t worker, std::size_t shard) {
    timeline.enter({ns, kind, part_of(worker, shard), members.life(worker)});
  }
  // Of who begins; from servers that wait for the first it pulls later.
  void enter_pulls(std::uint32_t worker) {
    players[worker].since = players[worker].fetched = fetch(worker, now);
    const bool all = !shards.agree() && !shards.first_grants();
    for (std::size_t s = 0; s < (all ? shards.size() : 1); ++s) enter_pull(worker, s);
  }
  // Now, whatever becomes of the worker in this moment, or when it has fetched its batch.
  void enter_pull(std::uint32_t worker, std::size_t shard) {
    const std::int64_t fetched = players[worker].fetched;
    if (fetched > now) return enter(fetched, ModeEvent::pull, worker, shard);
    timeline.enter({now, ModeEvent::pull, part_of(worker, shard)});
  }
  // When a batch is there that the worker begins to fetch at `from`.
  std::int64_t fetch(std::uint32_t worker, std::int64_t from) {
    const std::int64_t time = compute->fetching(worker, players[worker].fetches++, from);
    telemetry.sampling_seconds += in_seconds(time);
    return after(from, time);
  }

  const GradientSource& source;
  const DisciplineContext& context;
  const SimulationOptions& options;

  ServedRows rows;
  Shards shards;
  const std::int64_t term_ns;  // of leases; 0: none
  const modes::WorkerRule rule;
  OwnModels models;
  const std::unique_ptr<Durations> compute;
  Membership members;
  std::vector<ModePlayer> players;
  Timeline<ModeEvent> timeline;
  std::int64_t now = 0;
  Watch watch;
  PlayedData data;
  bool data_ended = false;  // as the servers have been told, of a stream

  WorkerTelemetry& telemetry;     // of all together
  std::size_t under_way = 0;      // parts of pushes to several servers, until they are carried out
  std::uint64_t own_updates = 0;  // to all models of workers' own
  std::size_t active = 0;         // there, and not at the end
  bool ended = false;             // all examples are done
  double away_seconds = 0;
  std::uint64_t lost = 0, departures = 0;
};

}  // namespace leashed
