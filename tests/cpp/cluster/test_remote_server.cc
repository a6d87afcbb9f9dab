// Workers of a mode whose server they reach over sockets: every mode that a policy server takes
// trains, with one worker to the bits of one thread; and whatever becomes of workers, connections
// and the server, each example is applied once, or the run ends and says why.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/policy_job.h"
#include "cluster/wires.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/cluster/remote_server.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/discipline/updater.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/engine/run.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/modes/mode_worker.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/simulation/play_record.h"
#include "leashed/update/registry.h"
#include "sanitized.h"

using namespace leashed;

namespace {

constexpr std::uint64_t kRun = 1, kTerms = 2, kBoot = 3;

using Hook = std::function<void(const std::atomic<bool>& cancel)>;

// What a server and its workers are made from.
struct Job {
  explicit Job(const Choice& mode, double workers = 3, double examples = kExamples,
               const Choice& rule_of = kMomentum)
      : choice(with_job(mode, workers, examples)),
        machine(modes::make_server_policy(choice)),
        rule(make_rule(rule_of)) {}
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), kFeatures, workers, 1, *rule};
  }
  float loss(const std::vector<float>& theta) const {
    float sum = 0;
    for (std::size_t row = 0; row < kJobRows; ++row) {
      float residual = -data.y[row];
      for (std::size_t i = 0; i < kFeatures; ++i)
        residual += theta[i] * data.x[row * kFeatures + i];
      sum += residual * residual;
    }
    return sum;
  }

  const Choice choice;
  const modes::ServerPolicy machine;
  const std::vector<float> initial = std::vector<float>(kFeatures, 0.25f);
  const std::unique_ptr<const Rule> rule;
  const Drawn data;
};

PolicyServer serve(const Job& job, std::uint64_t boot = kBoot) {
  const auto workers = static_cast<std::size_t>(job.choice.value("workers", 0));
  return {job.machine, job.context(workers), {kRun, kTerms, boot}};
}

// A server that is killed again and again, and started again from what it kept last.
class Killed {
 public:
  explicit Killed(const Job& job) : job_(job) { begin(); }

  PolicyServer& operator*() { return *server_; }
  void keep() {
    server_->quiet([&](PolicyService& service) {
      CHECK(service.failure().empty());
      nodes_ = service.server().nodes();
      taken_ = service.take({});
      served_ = service.served();
      heard_ = {service.counters().pushes, pushed(service.server().counts())};
    });
  }
  // Undoes what it heard since.
  void kill() {
    server_.reset();
    ++kills;
    if (!taken_) {
      begin();
      heard_ = {};
    } else {
      DisciplineContext context = job_.context(nodes_);
      const Layout layout = Updater(context).layout();
      require_fit(taken_->state, layout, context.sparse);
      const Resumed resumed(taken_->state, layout, context.staleness, context);
      const PolicyService::Begun begun{taken_->state.mode, workers(), false, &served_};
      server_ =
          std::make_unique<PolicyServer>(job_.machine, context, run(), nullptr, nullptr, &begun);
    }
    undone = {ever_[0] - heard_[0], ever_[1] - heard_[1]};
  }
  // Keeps what is all, and tells the end then; whoever was there and is not is let go.
  void let_end() {
    bool all = false;
    server_->quiet([&](PolicyService& service) {
      const ParameterServer& server = service.server();
      all = server.examples_leased() == kExamples && server.unfinished().empty();
    });
    if (!all) return;
    keep();
    server_->quiet([](PolicyService& service) { service.let_end(); });
  }
  void let_go_absent() {
    server_->quiet([](PolicyService& service) { service.let_go_absent(); });
  }
  // All that was heard is either of use or undone.
  void check() {
    server_->quiet([&](PolicyService& service) {
      CHECK(service.counters().pushes + undone[0] == ever_[0]);
      CHECK(pushed(service.server().counts()) + undone[1] == ever_[1]);
    });
  }

  std::uint64_t kills = 0;
  std::array<std::uint64_t, 2> undone{};  // pushes, and their examples

 private:
  std::size_t workers() const { return static_cast<std::size_t>(job_.choice.value("workers", 0)); }
  PolicyService::Run run() {
    PolicyService::Run run{kRun, kTerms, kBoot};
    run.ever = ever_;
    run.holds_end = true;
    return run;
  }
  void begin() {
    server_ = std::make_unique<PolicyServer>(job_.machine, job_.context(workers()), run());
  }
  static std::uint64_t pushed(const ModeCounts& counts) {
    std::uint64_t sum = 0;
    for (const std::uint64_t of_one : counts.worker_examples) sum += of_one;
    return sum;
  }

  const Job& job_;
  std::array<std::uint64_t, 2> ever_{}, heard_{};
  std::size_t nodes_ = 0;
  std::optional<TakenMode> taken_;
  Archived served_;
  std::unique_ptr<PolicyServer> server_;
};

std::vector<float> theta_of(PolicyServer& server) {
  std::vector<float> theta;
  server.quiet([&](PolicyService& service) {
    const ParameterVector::Pin latest = service.server().holder().pull();
    theta.assign(latest.data(), latest.data() + kFeatures);
  });
  return theta;
}
ModeCounts counts_of(PolicyServer& server) {
  ModeCounts counts;
  server.quiet([&](PolicyService& service) {
    CHECK(service.failure().empty());
    counts = service.server().counts();
  });
  return counts;
}

// A process of workers, as threads; the one that has made it sees to its connections.
class Trainer {
 public:
  Trainer(const Job& job, PolicyServer& server, std::size_t lanes, std::uint64_t client = 100,
          std::uint64_t life = 1, Hook before = nullptr, double patience = kLong,
          Transport wish = Transport::tcp, std::uint64_t terms = kTerms)
      : server_(&server),
        wish_(wish),
        batches_(job.data.view(), kBatch, kSeed),
        run(source_, job.data.view(), nothing_, {}, lanes, kBatch, nullptr,
            Counting::Updates::by_server),
        models(job.machine.rule(), job.machine.holds(), job.context(lanes)),
        remote(run.stop, batches_, job.machine.rule(), &models, kFeatures, lanes,
               {kRun, terms, client, life, patience}),
        cables_(lanes, -1),
        seats_(lanes) {
    source_.before = std::move(before);
    run.observe(nullptr, {});
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      seats_[lane].number = static_cast<std::uint32_t>(lane);
      seats_[lane].gradient = AlignedArray<float>(kFeatures);
    }
    const bool own = job.machine.rule().model == modes::WorkerRule::Model::own;
    for (Lane& lane : seats_) {
      workers_.emplace_back(run, remote, job.machine.rule(), own ? &models : nullptr, lane);
      threads_.emplace_back([this, &worker = workers_.back()] {
        worker.work();
        ended_.fetch_add(1, std::memory_order_relaxed);  // a count; join hands over
      });
    }
  }
  ~Trainer() {
    run.stop.stop(StopReason::interrupted);
    threads_.clear();
    unplug();
  }

  bool ended() const { return ended_.load(std::memory_order_relaxed) == seats_.size(); }
  // Another server is to be had from now on; null: none is.
  void moved(PolicyServer* to) { server_ = to; }
  // Connects whoever has no connection, and says whether all have ended.
  bool tend() {
    for (std::size_t lane = 0; lane < seats_.size() && server_; ++lane) {
      if (remote.missing(lane)) connect(lane);
    }
    return ended();
  }
  void connect(std::size_t lane) {
    const auto [one, other] = pair_of_sockets();
    plug(lane, other);
    std::jthread accepts([this, socket = one] { server_->adopt(socket, true, wish_); });
    remote.adopt(lane, other, true, wish_);
  }
  // To somebody who never says anything.
  void connect_to_nobody(std::size_t lane) {
    const auto [one, other] = pair_of_sockets();
    plug(lane, one);  // which stays open
    close(one);
    remote.adopt(lane, other, true);
  }
  // Connections that end here end there.
  void unplug() {
    for (int& cable : cables_) close(std::exchange(cable, -1));
  }
  void cut(std::size_t lane) { shutdown(cables_[lane], SHUT_RDWR); }
  std::string failure() {
    const std::lock_guard lock(run.failure_mutex);
    if (!run.failure) return "";
    try {
      std::rethrow_exception(run.failure);
    } catch (const std::exception& error) {
      return error.what();
    }
  }

 private:
  // Of no parameters of its own.
  struct Nothing final : Observed {
    void with_snapshot(const std::function<void(const float*, std::uint64_t)>&) override {}
    std::size_t live_vectors() const override { return 0; }
  };
  void plug(std::size_t lane, int socket) {
    close(cables_[lane]);
    cables_[lane] = dup(socket);
    REQUIRE(cables_[lane] >= 0);
  }

  PolicyServer* server_;
  const Transport wish_;
  Squares source_;
  const IndexedBatches batches_;
  Nothing nothing_;

 public:
  Run run;
  OwnModels models;
  RemoteServer remote;

 private:
  std::vector<int> cables_;  // a copy of each lane's socket, to cut it by
  std::vector<Lane> seats_;
  std::list<ModeWorker> workers_;
  std::atomic<std::size_t> ended_{0};
  std::vector<std::jthread> threads_;
};

void check_all_applied(PolicyServer& server, std::uint64_t examples) {
  const ModeCounts counts = counts_of(server);
  if (counts.exchanges > 0) return;
  CHECK(counts.applied + counts.stale + counts.straggler == examples);
  CHECK(counts.missing == 0);
}

void wait_for(const std::atomic<bool>& flag, const std::atomic<bool>& cancel) {
  while (!flag.load() && !cancel.load()) std::this_thread::yield();
}

// What a server hears, written down, and made again, by a replay and in virtual time.
struct Recorded {
  explicit Recorded(const Job& of) : job(of) {}

  PolicyServer serve() {
    return {job.machine,
            job.context(workers()),
            {kRun, kTerms, kBoot},
            [this](const modes::Event& event, Time at) { recorder.heard(event, at); },
            [this](modes::Node node, LogLine::Note note) {
              ++(note == LogLine::Note::renewed ? renewed : stepped);
              recorder.noted(node, note);
            }};
  }
  std::size_t workers() const { return static_cast<std::size_t>(job.choice.value("workers", 0)); }
  void check(PolicyServer& server) {
    std::vector<float> theta;
    std::uint64_t t = 0;
    server.quiet([&](PolicyService& service) {
      const ParameterVector::Pin latest = service.server().holder().pull();
      theta.assign(latest.data(), latest.data() + kFeatures);
      t = latest.t();
      writer.finish(t, theta);
    });
    REQUIRE(writer.failure().empty());
    const Trace trace(path.name);
    DisciplineContext context = job.context(workers());
    context.readers = 4;
    const Squares source;
    const Replayed made = replay(source, job.data.view(), job.machine, context, {}, trace,
                                 {workers(), kBatch, kSeed});
    CHECK(made.t == t);
    CHECK(made.ended);
    CHECK(made.difference == 0);
    CHECK(made.parameters == theta);
    const Choice instant{"constant", {{"seconds", 0}}};
    const SimulationOptions options{workers(), kBatch,  kSeed,   {},
                                    HUGE_VAL,  instant, instant, instant};
    const ModeResult played = simulate_record(source, job.data.view(), nullptr, job.choice,
                                              memorywise(source.dimension(), 1), trace, false,
                                              job.context(workers()), options, {});
    CHECK(played.simulation.training.parameters == theta);
    CHECK(played.simulation.training.updates == t);
    const ModeCounts then = counts_of(server);
    CHECK(played.counts.applied == then.applied);
    CHECK(played.counts.missing == then.missing);
    CHECK(played.counts.late == then.late);
    CHECK(played.counts.exchanges == then.exchanges);
  }

  struct Path {
    ~Path() { std::filesystem::remove(name); }
    const std::string name = (std::filesystem::temp_directory_path() /
                              ("test_remote_server." + std::to_string(getpid())))
                                 .string();
  };

  const Job& job;
  const Path path;
  TraceWriter writer{path.name, "{}", job.initial, 1, 0};
  ModeRecorder recorder{writer};
  std::atomic<std::uint64_t> renewed{0}, stepped{0};  // counts, by the thread that serves
};

}  // namespace

TEST_CASE("workers of several processes train by every mode that a policy server takes") {
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    for (const Transport wish : {Transport::tcp, Transport::shm}) {
      CAPTURE(mode.name);
      // By momentum SHAT with three does not always come closer, on threads neither.
      const Job job(mode, 3, kExamples, {"sgd", {{"lr", 0.01}}});
      PolicyServer server = serve(job);
      Trainer two(job, server, 2, 100, 1, nullptr, kLong, wish);
      Trainer one(job, server, 1, 200, 1, nullptr, kLong, wish);
      REQUIRE(comes_true([&] { return two.tend() & one.tend(); }));
      CHECK(two.failure() == "");
      CHECK(one.failure() == "");
      CHECK(one.run.stop.reason() == StopReason::epochs);
      CHECK_FALSE(one.run.stop.stopped());
      check_all_applied(server, kExamples);
      const PolicyServer::Counters served = server.counters();
      const RemoteServer::Counters a = two.remote.counters(), b = one.remote.counters();
      CHECK(a.pushes + b.pushes == served.pushes);
      CHECK(a.grants + b.grants == served.pushes);
      CHECK(a.cut + b.cut + a.left_out + b.left_out == 0);
      CHECK(served.lanes == 3);
      CHECK(served.strange + served.not_finite + served.replaced + served.lost == 0);
      two.unplug();
      one.unplug();
      CHECK(comes_true([&] { return server.counters().connections == 0; }));
      CHECK(server.counters().departures == 0);
      if (mode.name == "ensemble") continue;  // what its server has nobody trains
      CHECK(job.loss(theta_of(server)) < job.loss(job.initial));
    }
  }
}

TEST_CASE("one worker over sockets has the bits of one thread") {
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    CAPTURE(mode.name);
    const Job job(mode, 1);
    const ModeTrainResult threads = train_mode(Squares(), job.data.view(), nullptr, job.machine,
                                               job.context(1), {1, kBatch, kSeed, {}}, {});
    PolicyServer server = serve(job);
    Trainer trainer(job, server, 1);
    REQUIRE(comes_true([&] { return trainer.tend(); }));
    CHECK(trainer.failure() == "");
    std::vector<float> made = theta_of(server);
    if (mode.name == "ensemble") made.assign(trainer.models[0], trainer.models[0] + kFeatures);
    REQUIRE(threads.training.parameters.size() == kFeatures);
    CHECK(made != job.initial);
    CHECK(std::memcmp(made.data(), threads.training.parameters.data(), kFeatures * sizeof(float)) ==
          0);
  }
}

TEST_CASE("connections that are cut at any moment cost gradients and no example") {
  std::mt19937 random(5);
  std::uint64_t cuts = 0, left_out = 0;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    CAPTURE(mode.name);
    const Job job(mode);
    PolicyServer server = serve(job);
    const Hook slow = [](const std::atomic<bool>&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    Trainer trainer(job, server, 3, 100, 1, slow);
    REQUIRE(comes_true([&] {
      if (random() % 8 == 0) trainer.cut(random() % 3);
      if (random() % 16 == 0 && !trainer.ended()) trainer.connect(random() % 3);
      return trainer.tend();
    }));
    CHECK(trainer.failure() == "");
    check_all_applied(server, kExamples);
    const RemoteServer::Counters here = trainer.remote.counters();
    CHECK(here.strange + here.hung == 0);
    CHECK(here.pushes >= server.counters().pushes);
    CHECK(here.left_out <= server.counters().lost);
    cuts += here.cut;
    left_out += here.left_out;
  }
  CHECK(cuts > 0);
  CHECK(left_out > 0);
}

TEST_CASE("a worker's process that dies comes back with another life, or others have its lease") {
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    for (const bool comes_back : {true, false}) {
      CAPTURE(mode.name);
      CAPTURE(comes_back);
      const Job job(mode, 2);
      PolicyServer server = serve(job);
      std::atomic<int> gradients{0};
      const std::atomic<bool> never{false};
      const Hook stands_still = [&](const std::atomic<bool>& cancel) {
        if (++gradients == 3) wait_for(never, cancel);
      };
      auto dying = std::make_unique<Trainer>(job, server, 1, 100, 1, stands_still);
      Trainer other(job, server, 1, 200);
      REQUIRE(comes_true([&] { return other.tend(), dying->tend() || gradients >= 3; }));
      const bool in_a_lease = !dying->ended();
      dying.reset();
      std::unique_ptr<Trainer> again;
      if (comes_back) again = std::make_unique<Trainer>(job, server, 1, 100, 2);
      REQUIRE(comes_true([&] { return other.tend() & (!again || again->tend()); }));
      CHECK(other.failure() == "");
      check_all_applied(server, kExamples);
      if (in_a_lease) CHECK(server.counters().departures == 1);
      if (in_a_lease) CHECK(server.counters().lost > 0);
      CHECK(server.counters().lanes == 2);
    }
  }
}

TEST_CASE("of a worker that hangs others have the lease, and what it pushes then is late") {
  Choice mode{"asp"};
  mode.settings["term_ns"] = 50e6;
  const Job job(mode, 2);
  PolicyServer server = serve(job);
  std::atomic<bool> all_done{false};
  std::atomic<int> gradients{0};
  const Hook hangs = [&](const std::atomic<bool>& cancel) {
    if (++gradients == 1) wait_for(all_done, cancel);
  };
  Trainer hanging(job, server, 1, 100, 1, hangs);
  REQUIRE(comes_true([&] { return hanging.tend() || gradients > 0; }));
  Trainer other(job, server, 1, 200);
  REQUIRE(comes_true([&] { return hanging.tend(), other.tend(); }));
  check_all_applied(server, kExamples);
  all_done = true;
  REQUIRE(comes_true([&] { return hanging.tend(); }));
  CHECK(hanging.failure() == "");
  CHECK(counts_of(server).late >= kBatch);
  CHECK(hanging.remote.counters().left_out == 0);
}

TEST_CASE("who waits for others asks whether the server is there, however long that is") {
  const Job job({"sync"}, 2);
  PolicyServer server = serve(job);
  std::atomic<bool> go_on{false};
  const Hook waits = [&](const std::atomic<bool>& cancel) { wait_for(go_on, cancel); };
  Trainer slow(job, server, 1, 100, 1, waits);
  Trainer waiting(job, server, 1, 200, 1, nullptr, 4);
  const auto pushed = [&] { return waiting.remote.counters().pushes == 1; };
  REQUIRE(comes_true([&] { return slow.tend(), waiting.tend() || pushed(); }));
  std::uint64_t before = waiting.remote.counters().traffic.out;
  for (int probe = 0; probe < 3;) {  // the first of what had not been counted
    const std::uint64_t out = waiting.remote.counters().traffic.out;
    if (std::exchange(before, out) != out) ++probe;
    REQUIRE_FALSE(waiting.tend());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  go_on = true;
  REQUIRE(comes_true([&] { return slow.tend() & waiting.tend(); }));
  CHECK(waiting.failure() == "");
  CHECK(waiting.remote.counters().hung == 0);
  check_all_applied(server, kExamples);
}

TEST_CASE("a connection over which nothing is said is given up, and another goes on") {
  const Job job({"gba"}, 1);
  PolicyServer server = serve(job);
  Trainer trainer(job, server, 1, 100, 1, nullptr, 1);
  trainer.connect_to_nobody(0);
  REQUIRE(comes_true([&] { return trainer.tend(); }));
  CHECK(trainer.failure() == "");
  CHECK(trainer.remote.counters().hung >= 1);
  check_all_applied(server, kExamples);
}

TEST_CASE(
    "a server that is killed at any moment goes on from what it kept, and no example is lost") {
  std::mt19937 random(7);
  std::uint64_t undone = 0, from_nothing = 0;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    for (int i = 0; i < (sanitized() ? 1 : 3); ++i) {
      CAPTURE(mode.name);
      CAPTURE(i);
      const Job job(mode);
      Killed server(job);
      const Hook slow = [](const std::atomic<bool>&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      Trainer two(job, *server, 2, 100, 1, slow);
      std::uint64_t life = 1;
      auto dies = std::make_unique<Trainer>(job, *server, 1, 200, life, slow);
      REQUIRE(comes_true([&] {
        if (random() % 16 == 0) server.keep();
        if (random() % 16 == 0) server.let_end();
        if (random() % 32 == 0 && server.kills < 8) {
          from_nothing += server.kills == 0;
          server.kill();
          two.moved(&*server);
          dies->moved(&*server);
        }
        if (random() % 16 == 0) two.cut(random() % 2);
        if (random() % 64 == 0 && !dies->ended()) {
          dies.reset();
          dies = std::make_unique<Trainer>(job, *server, 1, 200, ++life, slow);
        }
        return two.tend() & dies->tend();
      }));
      CHECK(two.failure() == "");
      CHECK(dies->failure() == "");
      server.check();
      check_all_applied(*server, kExamples);
      CHECK((*server).counters().strange == 0);
      undone += server.undone[1];
    }
  }
  CHECK(undone > 0);
  CHECK(from_nothing > 0);
}

TEST_CASE("one worker of a server that is killed again and again has the bits of one thread") {
  std::mt19937 random(3);
  std::uint64_t kills = 0, undone = 0;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    const Job job(mode, 1);
    // Its own model has gone on, and begins anew with what the server has.
    if (job.machine.rule().model == modes::WorkerRule::Model::own) continue;
    CAPTURE(mode.name);
    const ModeTrainResult threads = train_mode(Squares(), job.data.view(), nullptr, job.machine,
                                               job.context(1), {1, kBatch, kSeed, {}}, {});
    Killed server(job);
    std::atomic<int> gradients{0};
    const Hook slow = [&](const std::atomic<bool>&) {
      ++gradients;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    Trainer trainer(job, *server, 1, 100, 1, slow);
    int seen = 0;
    REQUIRE(comes_true([&] {
      if (seen != gradients && random() % 2 == 0) server.keep();
      if (random() % 8 == 0) server.let_end();
      if (seen != gradients && random() % 8 == 0 && server.kills < 8) {
        server.kill();
        trainer.moved(&*server);
      }
      seen = gradients;
      return trainer.tend();
    }));
    CHECK(trainer.failure() == "");
    server.check();
    const std::vector<float> made = theta_of(*server);
    REQUIRE(threads.training.parameters.size() == kFeatures);
    CHECK(std::memcmp(made.data(), threads.training.parameters.data(), kFeatures * sizeof(float)) ==
          0);
    CHECK(counts_of(*server).applied == threads.counts.applied);
    kills += server.kills;
    undone += server.undone[0];
  }
  CHECK(kills > 8);
  CHECK(undone > 0);
}

TEST_CASE("of who does not come back to a server that was started again others have the lease") {
  const Job job({"sync"}, 2);
  Killed server(job);
  std::atomic<bool> stands{false};
  const std::atomic<bool> never{false};
  const Hook stands_still = [&](const std::atomic<bool>& cancel) {
    stands = true;
    wait_for(never, cancel);
  };
  auto dying = std::make_unique<Trainer>(job, *server, 1, 100, 1, stands_still);
  Trainer other(job, *server, 1, 200);
  REQUIRE(comes_true([&] {
    dying->tend(), other.tend();
    return stands && other.remote.counters().pushes == 1;
  }));
  server.keep();
  dying.reset();
  server.kill();
  other.moved(&*server);
  REQUIRE(comes_true([&] { return other.tend(), (*server).counters().connections == 1; }));
  CHECK_FALSE(other.ended());  // it waits
  server.let_go_absent();
  REQUIRE(comes_true([&] { return server.let_end(), other.tend(); }));
  CHECK(other.failure() == "");
  check_all_applied(*server, kExamples);
  server.check();
}

TEST_CASE("without a server, or one that takes it, a run ends and says so") {
  const Job job({"asp"}, 2);
  PolicyServer server = serve(job);
  const auto ends = [](Trainer& trainer, const char* why) {
    REQUIRE(comes_true([&] { return trainer.tend(); }));
    CHECK(trainer.run.stop.reason() == StopReason::error);
    CHECK(trainer.failure().find(why) != std::string::npos);
  };
  SUBCASE("nobody connects it") {
    Trainer trainer(job, server, 2, 100, 1, nullptr, 0.05);
    trainer.moved(nullptr);
    ends(trainer, "has said nothing for");
  }
  SUBCASE("it is refused") {
    Trainer trainer(job, server, 1, 100, 1, nullptr, 0.05, Transport::tcp, kTerms + 1);
    ends(trainer, "lets this worker in no more");
    CHECK(server.counters().refused > 0);
    CHECK(server.counters().pulls == 0);
  }
  SUBCASE("it was started again") {
    PolicyServer restarted = serve(job, kBoot + 1);
    std::atomic<bool> computes{false};
    const std::atomic<bool> never{false};
    std::atomic<bool> cut{false};
    const Hook waits = [&](const std::atomic<bool>& cancel) {
      computes = true;
      wait_for(cut, cancel);
    };
    Trainer trainer(job, server, 1, 100, 1, waits);
    REQUIRE(comes_true([&] { return trainer.tend() || computes; }));
    trainer.moved(&restarted);
    trainer.cut(0);
    cut = true;
    ends(trainer, "was started again");
    CHECK(trainer.remote.counters().left_out == kBatch);
  }
}

TEST_CASE("a run that is stopped ends, whatever its lanes wait for") {
  const Job job({"sync"}, 3);
  PolicyServer server = serve(job);
  std::atomic<bool> computes{false};
  const std::atomic<bool> never{false};
  const Hook waits = [&](const std::atomic<bool>& cancel) {
    computes = true;
    wait_for(never, cancel);
  };
  Trainer computing(job, server, 1, 100, 1, waits);
  Trainer waiting(job, server, 1, 200);  // for the other's push
  Trainer without(job, server, 1, 300);  // a connection
  REQUIRE(comes_true([&] {
    computing.tend(), waiting.tend();
    return computes && waiting.remote.counters().pushes == 1;
  }));
  for (Trainer* const trainer : {&waiting, &computing, &without}) {
    CHECK_FALSE(trainer->ended());
    trainer->run.stop.stop(StopReason::interrupted);
    REQUIRE(comes_true([&] { return trainer->ended(); }));
    CHECK(trainer->failure() == "");
    trainer->unplug();
  }
  CHECK(comes_true([&] { return server.counters().connections == 0; }));
  CHECK(server.counters().departures == 2);
}

TEST_CASE("workers of a server that holds, or ends the run, come to their end") {
  const Job job({"asp"}, 2, 1e9);
  PolicyServer server = serve(job);
  Trainer trainer(job, server, 2);
  REQUIRE(comes_true([&] { return trainer.tend() || server.counters().pushes > 20; }));
  SUBCASE("stopped meanwhile") {
    server.quiet([&](PolicyService&) {
      trainer.run.stop.stop(StopReason::interrupted);
      CHECK(comes_true([&] { return trainer.ended(); }));
    });
    CHECK(trainer.failure() == "");
  }
  SUBCASE("the end") {
    server.quiet([](PolicyService& service) { service.finish(); });
    REQUIRE(comes_true([&] { return trainer.tend(); }));
    CHECK(trainer.failure() == "");
    CHECK(trainer.run.stop.reason() == StopReason::epochs);
    CHECK(server.counters().departures == 0);
    CHECK(server.counters().lost == 0);
  }
}

TEST_CASE("a run's record is made again to its bits, whatever was cut and whoever died") {
  std::mt19937 random(11);
  std::uint64_t stepped = 0, renewed = 0;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode) || mode.name == "ensemble") continue;
    for (int i = 0; i < 3; ++i) {
      CAPTURE(mode.name);
      const Job job(mode);
      Recorded record(job);
      PolicyServer server = record.serve();
      const Hook slow = [](const std::atomic<bool>&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      Trainer two(job, server, 2, 100, 1, slow);
      std::uint64_t life = 1;
      auto dies = std::make_unique<Trainer>(job, server, 1, 200, life, slow);
      REQUIRE(comes_true([&] {
        if (random() % 8 == 0) two.cut(random() % 2);
        if (random() % 16 == 0 && !two.ended()) two.connect(random() % 2);
        if (random() % 64 == 0 && !dies->ended()) {
          dies.reset();
          dies = std::make_unique<Trainer>(job, server, 1, 200, ++life, slow);
        }
        return two.tend() & dies->tend();
      }));
      CHECK(two.failure() == "");
      CHECK(dies->failure() == "");
      record.check(server);
      stepped += record.stepped;
      renewed += record.renewed;
    }
  }
  CHECK(stepped > 0);
  CHECK(renewed > 0);
}
