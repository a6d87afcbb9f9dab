#include "leashed/cluster/mode_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/looked_rows.h"
#include "leashed/data/make_batches.h"
#include "leashed/data/reading.h"
#include "leashed/engine/executor.h"
#include "leashed/engine/run.h"
#include "leashed/engine/watched_run.h"
#include "leashed/modes/mode_worker.h"
#include "leashed/server/own_models.h"

namespace leashed {

using modes::WorkerRule;

namespace {

constexpr double kAsk = 0.02;      // seconds between two questions whether it is told to end
constexpr double kLastWait = 2.0;  // seconds without a byte of the server's, once it is

}  // namespace

// What is made for one training.
struct ModeTrainer::Training {
  Training(ModeTrainer& trainer, const GradientSource& source, const DatasetView& data,
           const WorkerRule& rule, const DisciplineContext& context,
           const ModeTrainOptions& options)
      : batches(make_batches(data, options.batch_size, options.seed, options.stream)),
        rows(trainer.tables_, trainer.over_,
             [&trainer](AskedRows& asked, const std::function<bool()>& keep_on) {
               trainer.look(asked, keep_on);
             }),
        run(source, data, trainer, options.until, options.workers, options.batch_size,
            source.tables().empty() ? nullptr : &rows, Counting::Updates::by_server),
        models(rule, true, context),
        remote(std::make_shared<RemoteServer>(
            run.stop, *batches, rule, &models, source.dimension(), options.workers,
            RemoteServer::Settings{
                trainer.settings_.run, trainer.settings_.terms, trainer.settings_.client,
                trainer.settings_.life, trainer.settings_.patience, trainer.shards_,
                trainer.settings_.reduces ? &context : nullptr, options.until.updates},
            source.tables().empty() ? nullptr : &trainer.tables_)),
        turns(trainer.settings_.at_once > 0 ? trainer.settings_.at_once : options.workers,
              run.stop),
        lanes(options.workers) {
    run.observe(options.metrics, options.observers);
    run.stop.on_stop([this, stream = options.stream ? options.stream->stream : nullptr] {
      if (stream) stream->stop();
      turns.stop();
    });
    const bool own = rule.model == WorkerRule::Model::own;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane].number = static_cast<std::uint32_t>(lane);
      lanes[lane].gradient = AlignedArray<float>(source.dimension());
      workers.emplace_back(run, *remote, rule, own ? &models : nullptr, lanes[lane], &turns);
    }
  }

  const std::unique_ptr<const BatchSource> batches;
  LookedRows rows;
  Run run;
  OwnModels models;
  const std::shared_ptr<RemoteServer> remote;
  Turns turns;
  std::vector<Lane> lanes;
  std::list<ModeWorker> workers;
};

ModeTrainer::ModeTrainer(std::size_t dimension, std::size_t lanes, const Settings& settings,
                         std::vector<ServedTable> tables, std::optional<RowPlacement> placement)
    : dimension_(dimension),
      lanes_(lanes),
      settings_(settings),
      shards_(settings.shards.servers() > 0 ? settings.shards : ModeShards::whole(dimension)),
      tables_{std::move(tables), {}, shards_.servers(), std::move(placement)},
      looks_({settings.run, settings.client + lanes, settings.life, settings.terms}, shards_,
             dimension) {
  const bool spread = shards_.servers() > 1 && !tables_.tables.empty();
  if (spread && (!tables_.placement || tables_.placement->tables() != tables_.tables.size())) {
    throw Error("placement must say of each table which policy servers have its rows");
  }
}

ModeTrainer::~ModeTrainer() = default;

bool ModeTrainer::missing(std::size_t slot, std::size_t server) const {
  if (over_.load(kRelaxed) || server >= shards_.servers()) return false;
  if (slot == lanes_) return !looks_.there(server);
  const std::lock_guard lock(mutex_);
  return remote_ && remote_->missing(slot, server);
}

bool ModeTrainer::adopt(std::size_t slot, std::size_t server, int socket, bool checked,
                        Transport wish, double) {
  if (server >= shards_.servers()) throw Error("a connection to a server that there is not");
  if (slot == lanes_) {
    looks_.adopt(server, connected(socket, kModeLimits, checked, wish, Role::offers));
    return true;
  }
  std::shared_ptr<RemoteServer> remote;
  {
    const std::lock_guard lock(mutex_);
    remote = remote_;
  }
  if (!remote) throw Error("no worker is there that wants a connection");
  remote->adopt(slot, socket, checked, wish, server);
  return true;
}

std::vector<std::pair<std::size_t, std::uint64_t>> ModeTrainer::wanted() const {
  const std::lock_guard lock(mutex_);
  if (!remote_ || over_.load(kRelaxed)) return {};
  return remote_->wanted();
}

void ModeTrainer::adopt_sum(std::size_t lane, std::uint64_t client, int socket, bool checked,
                            Transport wish, Role role) {
  std::shared_ptr<RemoteServer> remote;
  {
    const std::lock_guard lock(mutex_);
    remote = remote_;
  }
  if (!remote || lane >= lanes_) throw Error("no worker is there that wants a connection");
  remote->adopt_sum(lane, client, socket, checked, wish, role);
}

void ModeTrainer::end() {
  over_.store(true, kRelaxed);
  const std::lock_guard lock(mutex_);
  if (stop_) stop_->stop(StopReason::interrupted);
}

ModeTrainer::Counters ModeTrainer::counters() const {
  std::shared_ptr<RemoteServer> remote;
  {
    const std::lock_guard lock(mutex_);
    remote = remote_;
  }
  Counters all = remote ? remote->counters() : Counters{};
  WireSum wire{all.traffic, all.kernel};
  wire.add(looks_.traffic());
  all.traffic = wire.own;
  all.kernel = wire.kernel;
  return all;
}

void ModeTrainer::with_snapshot(const std::function<void(const float* theta, std::uint64_t t)>& f) {
  // What is told of a training at its end is of one moment, whatever others train meanwhile.
  if (!settled_) look();
  settled_ = workers_ended_;
  f(looks_.theta(), looks_.head().updates);
}

bool ModeTrainer::told_to_end() {
  if (!told_ && interrupted_ && interrupted_()) {
    told_ = heard_ = true;
    const std::lock_guard lock(mutex_);
    if (stop_) stop_->stop(StopReason::interrupted);
  }
  return told_;
}

bool ModeTrainer::look() {
  looks_.look();
  return await([this] { return looks_.turn(); }, nullptr);
}

void ModeTrainer::look(AskedRows& rows, const std::function<bool()>& keep_on) {
  looks_.look();
  if (await([&] { return looks_.turn(rows); }, keep_on)) return;
  looks_.forsake();
  while (keep_on()) std::this_thread::sleep_for(std::chrono::duration<double>(kAsk));
}

bool ModeTrainer::await(const std::function<bool()>& take, const std::function<bool()>& keep_on) {
  bool ends = false;
  double since = now(), ask = since + kAsk;
  std::uint64_t bytes = 0;
  while (!over_.load(kRelaxed)) {
    if (take()) return true;
    if (std::exchange(bytes, looks_.came()) != looks_.came()) since = now();
    if (now() >= ask) {
      ends = ends || told_to_end();
      if (keep_on && !keep_on()) return false;
      ask = now() + kAsk;
    }
    if (ends && now() - since > kLastWait) return false;
    if (now() - since > settings_.patience) {
      throw Error(
          "a policy server has not told its parameters as long as it is waited for; see what "
          "became "
          "of it, or be more patient");
    }
    looks_.wait();
  }
  return false;
}

ModeTrainResult ModeTrainer::train(const GradientSource& source, const DatasetView& data,
                                   const DatasetView* validation, const WorkerRule& rule,
                                   const DisciplineContext& context,
                                   const ModeTrainOptions& options,
                                   const TrainCallbacks& callbacks) {
  if (source.dimension() != dimension_ || options.workers != lanes_) {
    throw Error("a trainer of " + std::to_string(dimension_) + " parameters and " +
                std::to_string(lanes_) + " workers is to train others");
  }
  const auto same = [](const TableShape& read, const ServedTable& served) {
    return read.name == served.name && read.dim == served.dim;
  };
  if (!std::ranges::equal(source.tables(), tables_.tables, same)) {
    throw Error("a trainer of " + std::to_string(tables_.tables.size()) +
                " tables is to train a model that reads " + std::to_string(source.tables().size()) +
                ", or others");
  }
  tables_.features_of_tables = source.features_of_tables();
  looks_.begin(context.initial);
  Training training(*this, source, data, rule, context, options);
  const Reading reading(options.stream, 0);
  struct Shown {
    Shown(ModeTrainer& of, Training& made) : trainer(of) {
      const std::lock_guard lock(trainer.mutex_);
      trainer.remote_ = made.remote;
      trainer.stop_ = &made.run.stop;
      if (trainer.over_.load(kRelaxed)) made.run.stop.stop(StopReason::interrupted);
    }
    ~Shown() {
      trainer.interrupted_ = nullptr;
      const std::lock_guard lock(trainer.mutex_);
      trainer.stop_ = nullptr;
    }
    ModeTrainer& trainer;
  };
  const Shown shown(*this, training);
  TrainCallbacks heard = callbacks;
  if (callbacks.interrupted) {
    interrupted_ = callbacks.interrupted;
    heard.interrupted = [&] {
      const bool now_told = std::exchange(heard_, false) || callbacks.interrupted();
      told_ = told_ || now_told;
      return now_told;
    };
  }
  WatchedRun watched(training.run, validation, nullptr,
                     {options.evaluate_every, std::numeric_limits<double>::infinity()},
                     std::nan(""), heard);
  watched.train([&] {
    return std::make_unique<ThreadExecutor>(training.run, [&](std::size_t worker) {
      std::next(training.workers.begin(), static_cast<std::ptrdiff_t>(worker))->work();
    });
  });
  workers_ended_ = true;
  ended_.store(training.run.stop.reason() == StopReason::epochs, kRelaxed);
  ModeTrainResult result;
  result.training = watched.end([&](std::uint64_t) { return options.until.batches; });
  result.counts.applied = looks_.head().applied;
  result.counts.late = looks_.head().late;
  result.counts.stale = looks_.head().stale;
  result.counts.straggler = looks_.head().straggler;
  result.counts.lost = looks_.head().lost;
  result.counts.departures = looks_.head().departures;
  result.counts.exchanges = looks_.head().exchanges;
  result.counts.rows = result.training.rows = looks_.rows();
  result.counts.worker_examples = training.remote->examples();
  return result;
}

}  // namespace leashed
