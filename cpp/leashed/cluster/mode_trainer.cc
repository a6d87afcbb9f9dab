#include "leashed/cluster/mode_trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/data/make_batches.h"
#include "leashed/engine/executor.h"
#include "leashed/engine/run.h"
#include "leashed/engine/watched_run.h"
#include "leashed/modes/mode_worker.h"
#include "leashed/server/own_models.h"

namespace leashed {

using modes::WorkerRule;

namespace {

constexpr std::size_t kLooks = 0;  // of a conversation: the lane that there is
constexpr std::size_t kLookedFloats = sizeof(ModeLooked) / sizeof(float);
constexpr double kAsk = 0.02;      // seconds between two questions whether it is told to end
constexpr double kLastWait = 2.0;  // seconds without a byte of the server's, once it is

}  // namespace

// What is made for one training.
struct ModeTrainer::Training {
  Training(ModeTrainer& trainer, const GradientSource& source, const DatasetView& data,
           const WorkerRule& rule, const DisciplineContext& context,
           const ModeTrainOptions& options)
      : batches(make_batches(data, options.batch_size, options.seed, nullptr, false, true)),
        run(source, data, trainer, options.until, options.workers, options.batch_size, nullptr,
            Counting::Updates::by_server),
        models(rule, true, context),
        remote(std::make_shared<RemoteServer>(
            run.stop, *batches, rule, &models, source.dimension(), options.workers,
            RemoteServer::Settings{trainer.settings_.run, trainer.settings_.terms,
                                   trainer.settings_.client, trainer.settings_.life,
                                   trainer.settings_.patience})),
        lanes(options.workers) {
    run.observe(options.metrics, options.observers);
    const bool own = rule.model == WorkerRule::Model::own;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane].number = static_cast<std::uint32_t>(lane);
      lanes[lane].gradient = AlignedArray<float>(source.dimension());
      workers.emplace_back(run, *remote, rule, own ? &models : nullptr, lanes[lane]);
    }
  }

  const std::unique_ptr<const BatchSource> batches;
  Run run;
  OwnModels models;
  const std::shared_ptr<RemoteServer> remote;
  std::vector<Lane> lanes;
  std::list<ModeWorker> workers;
};

ModeTrainer::ModeTrainer(std::size_t dimension, std::size_t lanes, const Settings& settings)
    : dimension_(dimension),
      lanes_(lanes),
      settings_(settings),
      hello_{settings.run, settings.client + lanes, settings.life, settings.terms},
      looked_(kLookedFloats + dimension),
      coming_(kLookedFloats + dimension) {}

ModeTrainer::~ModeTrainer() = default;

bool ModeTrainer::missing(std::size_t slot, std::size_t) const {
  if (over_.load(kRelaxed)) return false;
  if (slot == lanes_) return !talk_.there(kLooks);
  const std::lock_guard lock(mutex_);
  return remote_ && remote_->missing(slot);
}

bool ModeTrainer::adopt(std::size_t slot, std::size_t, int socket, bool checked, Transport wish,
                        double) {
  if (slot == lanes_) {
    talk_.adopt(kLooks, connected(socket, kModeLimits, checked, wish, Role::offers));
    return true;
  }
  std::shared_ptr<RemoteServer> remote;
  {
    const std::lock_guard lock(mutex_);
    remote = remote_;
  }
  if (!remote) throw Error("no worker is there that wants a connection");
  remote->adopt(slot, socket, checked, wish);
  return true;
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
  wire.add(talk_.traffic());
  all.traffic = wire.own;
  all.kernel = wire.kernel;
  return all;
}

void ModeTrainer::with_snapshot(const std::function<void(const float* theta, std::uint64_t t)>& f) {
  // What is told of a training at its end is of one moment, whatever others train meanwhile.
  if (!settled_) look();
  settled_ = workers_ended_;
  f(looked_.data() + kLookedFloats, last_.updates);
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
  asked_ = false;
  bool ends = false;
  double since = now(), ask = since + kAsk;
  std::uint64_t bytes = 0;
  while (!over_.load(kRelaxed)) {
    try {
      if (take_look()) return true;
    } catch (const ConnectionError&) {
      talk_.drop(kLooks);
      asked_ = false;
    }
    talk_.count();
    if (std::exchange(bytes, talk_.traffic().own().in) != talk_.traffic().own().in) since = now();
    if (now() >= ask) {
      ends = ends || told_to_end();
      ask = now() + kAsk;
    }
    if (ends && now() - since > kLastWait) return false;
    if (now() - since > settings_.patience) {
      throw Error(
          "a policy server has not told its parameters as long as it is waited for; see what "
          "became "
          "of it, or be more patient");
    }
    const std::size_t lane = kLooks;
    talk_.wait({&lane, talk_.has(kLooks) ? 1u : 0u}, Deadline{});
  }
  return false;
}

bool ModeTrainer::take_look() {
  if (talk_.renew(kLooks)) asked_ = false;
  if (!talk_.has(kLooks)) return false;
  if (talk_.free(kLooks) && !std::exchange(asked_, true)) {
    const auto hello = std::as_bytes(std::span(&hello_, 1));
    talk_.say(kLooks, {.kind = kModeLook}, {&hello, 1});
    talk_.free(kLooks);
  }
  const auto header = talk_.hear(kLooks, [&](const FrameHeader& head) -> std::span<std::byte> {
    const std::span whole(coming_.data(), kLookedFloats + dimension_);
    if (head.kind != kModeLooked || head.length != whole.size_bytes()) {
      throw Error("the policy server has another model than this trainer; give both the same");
    }
    return std::as_writable_bytes(whole);
  });
  if (!header) return false;
  ModeLooked looked;
  std::memcpy(&looked, coming_.data(), sizeof looked);
  if (last_.boot != 0 && looked.boot != last_.boot) {
    throw Error(
        "the policy server was started again, and knows nothing of this run any more; start the "
        "run again");
  }
  last_ = looked;
  std::swap(looked_, coming_);
  asked_ = false;
  return true;
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
  std::copy_n(context.initial, dimension_, looked_.data() + kLookedFloats);
  Training training(*this, source, data, rule, context, options);
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
  result.counts.applied = last_.applied;
  result.counts.late = last_.late;
  result.counts.stale = last_.stale;
  result.counts.straggler = last_.straggler;
  result.counts.lost = last_.lost;
  result.counts.departures = last_.departures;
  result.counts.exchanges = last_.exchanges;
  result.counts.worker_examples = training.remote->examples();
  return result;
}

}  // namespace leashed
