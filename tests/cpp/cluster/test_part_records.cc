// Records of several policy servers that decide alike: made again by one thread, and in virtual
// time, they have the bits of all of them, of rows too, whatever was cut, and whatever was not
// finite at one of them alone.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cluster/parts_run.h"
#include "cluster/policy_world.h"
#include "leashed/base/error.h"
#include "leashed/cluster/part_ends.h"
#include "leashed/cluster/part_service.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/simulation/play_record.h"

using namespace leashed;

namespace {

enum class OfRows { none, fixed, growing };

// Of some batches a parameter of the first server, or one of the last, or a row has no gradient.
class Spoilt final : public GradientSource {
 public:
  explicit Spoilt(bool with_rows) : squares_(with_rows) { describe(squares_.described()); }
  std::unique_ptr<Workspace> make_workspace() const override { return squares_.make_workspace(); }
  float gradient(const float* theta, const BatchView& batch, float* gradient, Workspace& workspace,
                 const std::atomic<bool>& cancel) const override {
    constexpr float kInfinite = std::numeric_limits<float>::infinity();
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    squares_.gradient(theta, batch, gradient, workspace, cancel);
    if (!spoils) return 0;
    const float first = batch.targets.values[0];
    if (first > 0.35f) gradient[0] = kInfinite;
    if (first < -0.35f) gradient[kFeatures - 1] = kInfinite;
    if (std::abs(first) < 0.1f && !batch.tables.empty()) {
      batch.tables[0].gradient[batch.places[0][0] * batch.tables[0].stride] = kInfinite;
    }
    return 0;
  }
  Evaluation evaluate(const float* theta, const BatchView& batch,
                      Workspace& workspace) const override {
    return squares_.evaluate(theta, batch, workspace);
  }

  bool slow = true, spoils = true;

 private:
  Squares squares_;
};

std::vector<std::uint64_t> sums_of(const std::vector<std::shared_ptr<Table>>& tables) {
  std::vector<std::uint64_t> sums(2);
  for (const auto& table : tables) {
    const Table::Digest one = table->digest();
    sums[0] += one[0];
    sums[1] += one[1];
  }
  return sums;
}

struct NewPath {
  ~NewPath() { std::filesystem::remove(name); }
  const std::string name =
      (std::filesystem::temp_directory_path() / ("test_part_records." + std::to_string(getpid())))
          .string();
};

class Recording {
 public:
  Recording(const Choice& mode, std::size_t servers, OfRows rows)
      : sharding_(memorywise(kFeatures, servers)),
        rows_(rows == OfRows::none ? nullptr
                                   : std::make_unique<PartRows>(servers, rows == OfRows::growing)),
        source_(rows != OfRows::none),
        run(mode, 3, sharding_,
            {[this](const modes::Event& event, Time at) { recorder_.heard(event, at); },
             [this](modes::Node node, LogLine::Note note) { recorder_.noted(node, note); },
             rows_.get()}) {}

  void train(std::size_t cuts, std::uint32_t seed) {
    // (A model of one's own that is not finite stays so.)
    source_.spoils = run.choice_.name != "local_sgd";
    run.cut(cuts, seed);
    ModeTrainer trainer(kFeatures, 3, run.settings(),
                        rows_ ? rows_->served() : std::vector<ServedTable>(),
                        rows_ ? std::optional(rows_->placement) : std::nullopt);
    run.tend(trainer);
    CHECK(run.train(trainer, 3, source_).training.reason == StopReason::epochs);
    run.forget(trainer);
    end();
  }
  void check() {
    const Trace trace(path_.name);
    const std::unique_ptr<const Rule> rule = make_rule(kMomentum);
    const DisciplineContext context{run.initial.data(), kFeatures, 3, 4, *rule};
    const DatasetView data = rows_ ? rows_->view(run.data) : run.data.view();
    std::vector<std::shared_ptr<Table>> tables;
    if (rows_) tables.push_back(rows_->made());
    ReplayOptions options{3, kBatch, kSeed};
    options.looks_up = rows_ != nullptr;
    options.sharding = sharding_;
    source_.slow = false;
    const Replayed made = replay(source_, data, run.machine, context, tables, trace, options);
    CHECK(made.ended);
    CHECK(made.difference == 0);
    CHECK(made.parameters == theta_);
    if (rows_) CHECK(sums_of(tables) == digests_);
    if (rows_) tables[0] = rows_->made();
    const Choice instant{"constant", {{"seconds", 0}}};
    SimulationOptions played{3, kBatch, kSeed, {}, HUGE_VAL, instant, instant, instant};
    played.tables = tables;
    const ModeResult found = simulate_record(source_, data, nullptr, run.choice_, sharding_, trace,
                                             rows_ != nullptr, context, played, {});
    CHECK(found.simulation.training.parameters == theta_);
    if (rows_) CHECK(sums_of(tables) == digests_);
    for (std::size_t s = 0; s < run.servers(); ++s) {
      CHECK(found.shards[s].applied == run.counts(s).applied);
    }
  }

  std::uint64_t missed = 0, missing = 0;

 private:
  void end() {
    CHECK(comes_true([&] {
      bool known = false;
      run.first->quiet([&](PolicyService& service) { known = service.ends_known(); });
      return known;
    }));
    theta_ = run.theta();
    std::uint64_t t = 0;
    run.first->quiet([&](PolicyService& service) {
      t = service.server().holder().pull().t();
      std::vector<std::uint64_t> others(2);
      std::uint32_t server = 0;
      for (const PartEnd& end : service.take_ends()) {
        ++server;
        missed += end.missed.size();
        for (const std::uint64_t line : end.missed) recorder_.missed(server, line);
        t = std::min(t, end.updates);
        CHECK(end.theta.size() == sharding_.size(server));
        if (!rows_) continue;
        others[0] += end.digests.at(0);
        others[1] += end.digests.at(1);
      }
      if (!rows_) return writer_.finish(t, theta_);
      digests_ = sums_of({rows_->tables[0]});
      digests_[0] += others[0];
      digests_[1] += others[1];
      CHECK(digests_ == sums_of(rows_->tables));
      writer_.finish(t, theta_, digests_);
    });
    for (std::size_t s = 0; s < run.servers(); ++s) missing += run.counts(s).missing;
    for (const auto& other : run.others) CHECK(comes_true([&] { return other->end_known(); }));
    REQUIRE(writer_.failure().empty());
  }

  const NewPath path_;
  const Sharding sharding_;
  const std::unique_ptr<PartRows> rows_;  // null: there are none
  TraceWriter writer_{path_.name, "{}", std::vector<float>(kFeatures, 0.25f), 1, 0};
  ModeRecorder recorder_{writer_};
  Spoilt source_;
  std::vector<float> theta_;
  std::vector<std::uint64_t> digests_;

 public:
  PartsRun run;
};

}  // namespace

TEST_CASE(
    "a record of several servers has the bits of all, whatever was cut or not finite at one") {
  std::uint64_t missed = 0, missing = 0;
  std::uint32_t seed = 0;
  for (const char* const name : {"sync", "hop_bw", "local_sgd", "switching", "automatic"}) {
    Choice mode{name};
    if (mode.name == "hop_bw") mode.settings["b3"] = 1;
    if (mode.name == "local_sgd") mode.settings["h"] = 2;
    const bool switches = mode.name == "switching" || mode.name == "automatic";
    for (const OfRows rows : {OfRows::none, OfRows::fixed, OfRows::growing}) {
      if (rows != OfRows::none && (switches || mode.name == "local_sgd")) continue;
      for (const std::size_t servers : {2, 3}) {
        CAPTURE(name);
        CAPTURE(static_cast<int>(rows));
        CAPTURE(servers);
        Recording recording(mode, servers, rows);
        if (mode.name == "switching") {
          recording.run.first->quiet([](PolicyService& service) { service.command(1); });
        }
        recording.train(40, ++seed);
        recording.check();
        missed += recording.missed;
        missing += recording.missing;
      }
    }
  }
  CHECK(missed > 0);
  CHECK(missing > missed);
}

TEST_CASE("parts that no server of the run can have missed are refused") {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("test_missed." + std::to_string(getpid())))
          .string();
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const Drawn data;
  const Choice mode = with_job({"sync"}, 1, kExamples);
  for (const std::uint32_t server : {0u, 2u}) {
    {
      TraceWriter writer(path, "{}", initial, 1, 0);
      ModeRecorder(writer).missed(server, 3);
    }
    for (const std::size_t servers : {1, 2}) {
      CAPTURE(server);
      CAPTURE(servers);
      ReplayOptions options{1, kBatch, kSeed};
      options.sharding = memorywise(kFeatures, servers);
      const char* const why = servers == 1 ? "contradict each other" : "that the run had not";
      CHECK_THROWS_WITH_AS(
          replay(Squares(), data.view(), modes::make_server_policy(mode),
                 {initial.data(), kFeatures, 1, 4, *rule}, {}, Trace(path), options),
          doctest::Contains(why), Error);
    }
    std::filesystem::remove(path);
  }
}

TEST_CASE("parts of what was no push are refused") {
  const NewPath path;
  for (const std::uint64_t event : {0, 1, 2}) {
    CAPTURE(event);
    {
      TraceWriter writer(path.name, "{}", std::vector<float>(kFeatures), 1, 0);
      ModeRecorder recorder(writer);
      recorder.heard({modes::Event::Kind::pull, 0}, Time{1});
      recorder.heard({modes::Event::Kind::push, 0, 0, 0}, Time{2});
      recorder.missed(1, event);
    }
    const Trace trace(path.name);
    if (event == 1) {
      CHECK(MissedParts(trace, 2)(1, 1));
      CHECK_FALSE(MissedParts(trace, 2)(0, 1));
    } else {
      CHECK_THROWS_WITH_AS(MissedParts(trace, 2), doctest::Contains("what was no push"), Error);
    }
  }
}

TEST_CASE("what a log tells of sums is in no record, and is not a worker's own steps") {
  const NewPath path;
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const Drawn data;
  const Choice mode = with_job({"local_sgd", {{"h", 2}}}, 1, kExamples);
  const DisciplineContext context{initial.data(), kFeatures, 1, 4, *rule};
  using Note = LogLine::Note;
  for (const Note note : {Note::summed, Note::granted, Note::home, Note::lost}) {
    CAPTURE(static_cast<int>(note));
    {
      TraceWriter writer(path.name, "{}", initial, 1, 0);
      ModeRecorder recorder(writer);
      recorder.heard({modes::Event::Kind::pull, 0}, Time{1});
      recorder.noted(0, note);
    }
    const Trace trace(path.name);
    CHECK_THROWS_AS(replay(Squares(), data.view(), modes::make_server_policy(mode), context, {},
                           trace, {1, kBatch, kSeed}),
                    Error);
    const Choice instant{"constant", {{"seconds", 0}}};
    CHECK_THROWS_AS(
        simulate_record(Squares(), data.view(), nullptr, mode, memorywise(kFeatures, 1), trace,
                        false, context, {1, kBatch, kSeed, {}, HUGE_VAL, instant, instant, instant},
                        {}),
        Error);
  }
}

TEST_CASE("who is yet to answer is asked for no more, however far the log goes meanwhile") {
  constexpr Peer kOther = 5, kNext = 6;
  HeldPost post;
  post.boxes[kOther];
  post.boxes[kNext];
  ToldLog log(1, 0);
  PartEnds ends;
  const auto goes_on = [&] { log.append({modes::Event::Kind::wake}, Time{1}); };
  // What is asked for over the connection, in its order.
  const auto asked = [&](Peer peer) {
    std::vector<std::uint64_t> positions;
    while (!post.boxes[peer].empty()) {
      const auto [header, bytes] = post.take(peer);
      if (header.kind != kToldEnd) continue;
      positions.push_back(0);
      std::memcpy(&positions.back(), bytes.data(), sizeof positions.back());
    }
    return positions;
  };
  const auto answer = [&](Peer peer, std::uint64_t position, std::vector<std::uint64_t> missed) {
    const ToldEnded said{31, position, 1, missed.size(), 0};
    const std::size_t numbers = missed.size() * sizeof(std::uint64_t);
    const std::span<std::byte> to = ends.place(peer, sizeof said + numbers + sizeof(float));
    std::memcpy(to.data(), &said, sizeof said);
    if (numbers > 0) std::memcpy(to.data() + sizeof said, missed.data(), numbers);
    std::memset(to.data() + sizeof said + numbers, 0, sizeof(float));
    ends.said(peer);
  };
  using Positions = std::vector<std::uint64_t>;
  goes_on();
  log.hello(kOther, 1, {1, 2, 31, 0}, 30, post);
  CHECK_FALSE(ends.known(log, post));
  goes_on();
  CHECK_FALSE(ends.known(log, post));
  CHECK(asked(kOther) == Positions{1});
  answer(kOther, 1, {});
  CHECK_FALSE(ends.known(log, post));
  CHECK(asked(kOther) == Positions{2});
  log.gone(kOther);
  CHECK_FALSE(ends.known(log, post));
  log.hello(kNext, 1, {1, 2, 31, 0}, 30, post);
  CHECK_FALSE(ends.known(log, post));
  CHECK(asked(kNext) == Positions{2});
  CHECK_THROWS_WITH_AS(answer(kNext, 1, {}), doctest::Contains("another line"), Error);
  for (const Positions& missed : {Positions{1, 0}, Positions{0, 0}, Positions{2}}) {
    CHECK_THROWS_WITH_AS(answer(kNext, 2, missed), doctest::Contains("the log has not"), Error);
  }
  answer(kNext, 2, {0, 1});
  CHECK(ends.known(log, post));
  CHECK(ends.of()[0].missed == Positions{0, 1});
  CHECK(asked(kNext).empty());
}

TEST_CASE("what was asked for over a connection that has ended is not answered over the next one") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const Choice mode = with_job({"sync"}, 1, kExamples);
  PartService::Run run{kPartRun, kPartTerms, 31, 1};
  run.recorded = true;
  PartService service(mode, {initial.data(), kFeatures, 1, 1, *rule}, run);
  HeldPost post;
  service.open(post);
  struct Nobody final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override {}
  } nobody;
  const auto say = [&](Peer peer, std::uint16_t kind, std::span<const std::byte> bytes) {
    const FrameHeader header{.kind = kind, .length = bytes.size()};
    std::ranges::copy(bytes, service.place(peer, header).begin());
    service.frame(peer, header, nobody);
  };
  const auto comes = [&](Peer peer) {
    service.come(peer);
    post.boxes[peer];
    const ToldAt at{1, 30};
    say(peer, kToldAt, std::as_bytes(std::span(&at, 1)));
  };
  EventLog log;
  log.append({modes::Event::Kind::pull, 0}, Time{1});
  log.close();
  const EventLog::Block block = log.from(0).front();
  const ToldEnd asked{1};
  comes(7);
  say(7, kToldEnd, std::as_bytes(std::span(&asked, 1)));
  service.gone(7);
  comes(8);
  say(8, kTold, *block);
  CHECK(service.position() == 1);
  REQUIRE(post.boxes[8].size() == 1);
  CHECK(post.take(8).first.kind == kToldAt);
  say(8, kToldEnd, std::as_bytes(std::span(&asked, 1)));
  REQUIRE(post.boxes[8].size() == 1);
  CHECK(post.take(8).first.kind == kToldEnded);
}

TEST_CASE("a server that knows no sums of workers, or of no record's end, is told of none") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const DisciplineContext context{initial.data(), kFeatures, 1, 1, *rule};
  PartService::Run recorded{kPartRun, kPartTerms, 31, 1};
  recorded.recorded = true;
  const auto why = doctest::Contains("of a log that is of events alone");
  CHECK_THROWS_WITH_AS(PartService(with_job({"gba"}, 1, kExamples), context, recorded), why, Error);
  recorded.reduces = true;
  const Choice sync = with_job({"sync"}, 1, kExamples);
  CHECK_THROWS_WITH_AS(PartService(sync, context, recorded), why, Error);
  for (const char* const name : {"sync", "gba"}) {
    CAPTURE(name);
    PartService service(with_job({name}, 1, kExamples), context, {kPartRun, kPartTerms, 31, 1});
    HeldPost post;
    service.open(post);
    struct Nobody final : Outbox {
      void send(const FrameHeader&, Connection::Parts) override {}
    } nobody;
    service.come(7);
    const ToldAt at{0, 30};
    const FrameHeader hello{.kind = kToldAt, .length = sizeof at};
    std::memcpy(service.place(7, hello).data(), &at, sizeof at);
    service.frame(7, hello, nobody);
    EventLog log;
    log.append({{modes::Event::Kind::push, 0}, Time{1}, LogLine::Note::summed});
    log.close();
    const EventLog::Block block = log.from(0).front();
    const FrameHeader header{.kind = kTold, .length = block->size()};
    std::ranges::copy(*block, service.place(7, header).begin());
    CHECK_THROWS_WITH_AS(service.frame(7, header, nobody),
                         doctest::Contains("tells of sums of workers"), Error);
  }
}

TEST_CASE("at its end a run is asked for by the first alone, and answered by who was asked") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const Choice mode = with_job({"sync"}, 1, kExamples);
  PartService::Run run{kPartRun, kPartTerms, 31, 1};
  PartService service(mode, {initial.data(), kFeatures, 1, 1, *rule}, run);
  struct Nobody final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override {}
  } nobody;
  service.come(7);
  const FrameHeader header{.kind = kToldEnd, .length = sizeof(ToldEnd)};
  service.place(7, header);
  CHECK_THROWS_WITH_AS(service.frame(7, header, nobody),
                       doctest::Contains("not asked for by the first"), Error);
  PartEnds ends;
  CHECK_THROWS_WITH_AS(ends.place(7, sizeof(ToldEnded)),
                       doctest::Contains("an end that was not asked for"), Error);
}
