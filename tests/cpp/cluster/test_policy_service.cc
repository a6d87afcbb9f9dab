// What a policy server answers, without a socket or a thread: under schedules of workers that come
// and go, are cut off, hang, and say what does not belong there, each mode does what it does when
// it is told directly.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "asked.h"
#include "cluster/policy_job.h"
#include "cluster/policy_world.h"
#include "leashed/data/indexed_batches.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/modes/mode_replay.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/server/own_models.h"
#include "modes/all_modes.h"

using namespace leashed;

namespace {

// LEASHED_SCHEDULES: how many of each mode; by hand.
std::size_t schedules_of_each(std::size_t few) { return asked_for("LEASHED_SCHEDULES", few); }

// LEASHED_FUZZ: how many frames; ten million by hand.
std::size_t frames_of_any_kind(std::size_t few) { return asked_for("LEASHED_FUZZ", few); }

// What one worker makes over frames, by the worker's own rule (policy/worker_rule.h). Of every
// `spoilt`-th push nothing is finite; 0: of none.
std::vector<float> by_frames(const Choice& mode, const DisciplineContext& context,
                             PolicyService::Heard heard = nullptr, int spoilt = 0) {
  const Squares source;
  const Drawn data;
  const modes::ServerPolicy machine = modes::make_server_policy(mode);
  PolicyService service(machine, context, {1, 2, 3}, std::move(heard));
  Frames frames(service);
  int pushes = 0;
  ParameterServer twin(machine, context);  // whose grants the worker's model takes
  OwnModels models(twin, context);
  const modes::WorkerRule rule = twin.rule();
  const bool own = rule.model == modes::WorkerRule::Model::own;
  const IndexedBatches batches(data.view(), kBatch, kSeed);
  const auto workspace = source.make_workspace();
  const std::atomic<bool> never{false};
  const Peer peer = frames.come();
  frames.say(peer, kModeHello, 0, mode_hello(1, 9, 1, 2));
  CHECK(frames.post.take(peer).first.kind == kModeWelcome);
  frames.say(peer, kModePull, 0, {});
  std::vector<float> sent(kFeatures);
  Batch batch;
  while (true) {
    const auto [header, bytes] = frames.post.take(peer);
    if (header.kind == kModeEnd) break;
    GrantHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.count == 0) continue;
    std::vector<float> theta(kFeatures);
    std::memcpy(theta.data(), bytes.data() + sizeof head, kFeatures * sizeof(float));
    if (own) {
      twin.holder().change([&](float* held) { std::ranges::copy(theta, held); });
      models.take({0,
                   {head.ticket, head.number, head.first, head.count, head.token},
                   head.version,
                   head.n,
                   head.c,
                   twin.holder().pull(),
                   head.t});
    }
    const std::uint64_t steps = std::min<std::uint64_t>(rule.local_steps, head.count);
    for (std::uint64_t i = 0; i < steps; ++i) {
      const std::uint64_t begin = head.count * i / steps, end = head.count * (i + 1) / steps;
      batches.fill_span(head.first + begin, end - begin, batch);
      source.gradient(own ? models[0] : theta.data(), batch.view, sent.data(), *workspace, never);
      if (rule.steps_own) models.step(0, sent.data());
    }
    if (rule.sends == modes::WorkerRule::Sends::model) std::copy_n(models[0], kFeatures, &sent[0]);
    std::vector<float> said = sent;
    if (spoilt > 0 && ++pushes % spoilt == 0) std::ranges::fill(said, std::nanf(""));
    Bytes payload;
    put(payload, said);
    frames.say(peer, kModePushPull, head.ticket, payload);
  }
  const ParameterVector::Pin latest = service.server().holder().pull();
  const float* const made = service.server().has_global_model() ? latest.data() : models[0];
  return {made, made + kFeatures};
}

// So many, and nanoseconds apart.
std::vector<Peer> some_that_pull(Frames& frames, std::uint64_t count, std::int64_t apart = 0) {
  std::vector<Peer> peers;
  for (std::uint64_t client = 0; client < count; ++client) {
    peers.push_back(frames.come());
    frames.say(peers.back(), kModeHello, 0, mode_hello(1, client, 1, 2));
    frames.post.take(peers.back());
    frames.say(peers.back(), kModePull, 0, {});
    frames.post.time += apart;
  }
  return peers;
}

// What a worker that has a lease has computed, and asks for another.
void push_and_pull(Frames& frames, Peer peer) {
  const std::uint64_t ticket = frames.post.take(peer).first.correlation;
  Bytes values;
  put(values, std::vector<float>(kFeatures, 0.5f));
  frames.say(peer, kModePushPull, ticket, values);
}

}  // namespace

TEST_CASE("whatever becomes of its workers, each mode over frames does what it is told") {
  PolicyWorld::Happened all;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    for (std::size_t seed = 0; seed < schedules_of_each(30); ++seed) {
      CAPTURE(mode.name);
      CAPTURE(seed);
      PolicyWorld::Setting setting{.mode = mode};
      setting.workers = 1 + seed % 4;
      if (seed % 3 == 2) setting.term_ns = 0;
      if (seed % 2 == 1) setting.faults = 2;  // after which nobody comes to a sufferer's help
      if (seed % 5 == 4) setting.staleness = {"power", {{"k", 0.5}}};
      PolicyWorld world(setting, static_cast<std::uint32_t>(seed));
      world.run();
      const PolicyWorld::Happened& one = world.happened();
      for (const auto sum : {&PolicyWorld::Happened::cuts, &PolicyWorld::Happened::restarts,
                             &PolicyWorld::Happened::replaced, &PolicyWorld::Happened::strange,
                             &PolicyWorld::Happened::not_finite, &PolicyWorld::Happened::left,
                             &PolicyWorld::Happened::late, &PolicyWorld::Happened::commands}) {
        all.*sum += one.*sum;
      }
    }
  }
  CHECK(all.cuts > 0);
  CHECK(all.restarts > 0);
  CHECK(all.replaced > 0);
  CHECK(all.strange > 0);
  CHECK(all.not_finite > 0);
  CHECK(all.left > 0);
  CHECK(all.late > 0);
  CHECK(all.commands > 0);
}

TEST_CASE("one worker over frames has the bits of one thread") {
  const Squares source;
  const Drawn data;
  const std::vector<float> initial(kFeatures, 0.25f);
  const auto rule = make_rule(kMomentum);
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode)) continue;
    CAPTURE(mode.name);
    const Choice choice = with_job(mode, 1, kExamples);
    const DisciplineContext context{initial.data(), kFeatures, 1, 1, *rule};
    const ModeTrainResult threads =
        train_mode(source, data.view(), nullptr, modes::make_server_policy(choice), context,
                   {1, kBatch, kSeed, {}}, {});
    CHECK(threads.training.updates > 0);
    const std::vector<float> made = by_frames(choice, context);
    REQUIRE(threads.training.parameters.size() == kFeatures);
    CHECK(made != initial);
    CHECK(std::memcmp(made.data(), threads.training.parameters.data(), kFeatures * sizeof(float)) ==
          0);
  }
}

TEST_CASE("modes whose workers have what no server takes are refused by name") {
  const std::vector<float> initial(kFeatures);
  const auto rule = make_rule(kMomentum);
  const DisciplineContext context{initial.data(), kFeatures, 2, 1, *rule};
  for (const Choice& mode : all_modes()) {
    const auto machine = modes::make_server_policy(with_job(mode, 2, 100));
    if (has_server(mode)) {
      CHECK_NOTHROW(PolicyService(machine, context, {1, 2, 3}));
    } else if (mode.name == "all_reduce") {
      CHECK_THROWS_WITH_AS(PolicyService(machine, context, {1, 2, 3}),
                           doctest::Contains("take sync"), Error);
    } else {
      CHECK_THROWS_WITH_AS(PolicyService(machine, context, {1, 2, 3}),
                           doctest::Contains("take a mode with a server"), Error);
    }
  }
}

TEST_CASE("terms differ where a number of the model, the mode or the rule does") {
  const Choice mode{"gba", {{"iota", 4}}};
  const std::uint64_t one = mode_terms(1, kFeatures, mode, kMomentum, {"none"});
  CHECK(one == mode_terms(1, kFeatures, {"gba", {{"iota", 4}}}, kMomentum, {"none"}));
  CHECK(one != mode_terms(2, kFeatures, mode, kMomentum, {"none"}));
  CHECK(one != mode_terms(1, kFeatures + 1, mode, kMomentum, {"none"}));
  CHECK(one != mode_terms(1, kFeatures, {"gba", {{"iota", 5}}}, kMomentum, {"none"}));
  CHECK(one != mode_terms(1, kFeatures, {"gba", {{"iotb", 4}}}, kMomentum, {"none"}));
  CHECK(one != mode_terms(1, kFeatures, mode, {"sgd", {{"lr", 0.02}}}, {"none"}));
  CHECK(one != mode_terms(1, kFeatures, mode, kMomentum, {"power", {{"k", 1}}}));
  Choice scheduled = kMomentum;
  scheduled.parts["schedule"] = {"steps", {}, {{"at", {1, 2}}}};
  const std::uint64_t other = mode_terms(1, kFeatures, mode, scheduled, {"none"});
  CHECK(other != one);
  scheduled.parts["schedule"].tables["at"][1] = 3;
  CHECK(other != mode_terms(1, kFeatures, mode, scheduled, {"none"}));
  // Of such numbers only the highest bits differ.
  std::set<std::uint64_t> all;
  for (int i = -16; i < 16; ++i) {
    for (int j = -16; j < 16; ++j) {
      for (const double sign : {1.0, -1.0}) {
        const Choice few{"gba", {{"a", sign * std::ldexp(1, i)}, {"b", sign * std::ldexp(-1, j)}}};
        all.insert(mode_terms(1, kFeatures, few, kMomentum, {"none"}));
      }
    }
  }
  CHECK(all.size() == 32 * 32 * 2);
}

TEST_CASE("where a server can go on no more, nobody waits for it, and none takes it for alive") {
  const std::vector<float> initial(kFeatures, 1.0f);
  const auto rule = make_rule(kMomentum);
  const DisciplineContext context{initial.data(), kFeatures, 2, 1, *rule};
  for (const bool by_a_push : {true, false}) {
    CAPTURE(by_a_push);
    bool full = false;
    const PolicyService::Heard journal = [&](const modes::Event&, Time) {
      if (full) throw Error("the journal's disk is full");
    };
    PolicyService service(modes::make_server_policy(with_job({"ssp", {{"s", 0}}}, 2, 0)), context,
                          {1, 2, 3}, journal);
    Frames frames(service);
    const std::vector<Peer> peers = some_that_pull(frames, 2);
    push_and_pull(frames, peers[0]);
    CHECK(frames.post.boxes[peers[0]].empty());  // it is ahead, and waits
    full = true;
    if (by_a_push) {
      CHECK_THROWS_WITH_AS(push_and_pull(frames, peers[1]), "the journal's disk is full", Error);
    } else {
      frames.close(peers[1]);
    }
    CHECK(service.failure() == "the journal's disk is full");
    CHECK(frames.post.refused.contains(peers[0]));
    CHECK_THROWS_AS(frames.say(peers[0], kProbe, 0, Bytes(1)), Error);
    frames.close(peers[0]);
    const Peer late = frames.come();
    CHECK_THROWS_AS(frames.say(late, kModeHello, 0, mode_hello(1, 0, 1, 2)), Error);
  }
}

TEST_CASE(
    "when a run is over, who waits is told so, others when they pull; what comes is counted") {
  const std::vector<float> initial(kFeatures, 1.0f);
  const auto rule = make_rule(kMomentum);
  const DisciplineContext context{initial.data(), kFeatures, 3, 1, *rule};
  PolicyService service(modes::make_server_policy(with_job({"ssp", {{"s", 0}}}, 3, 0)), context,
                        {1, 2, 3});
  Frames frames(service);
  const std::vector<Peer> peers = some_that_pull(frames, 3);
  push_and_pull(frames, peers[0]);
  CHECK(frames.post.boxes[peers[0]].empty());  // it is ahead of the others
  service.finish();
  CHECK(frames.post.take(peers[0]).first.kind == kModeEnd);
  const std::uint64_t t = service.server().holder().pull().t();
  push_and_pull(frames, peers[1]);
  CHECK(frames.post.take(peers[1]).first.kind == kModeEnd);
  CHECK(service.counters().unused == kBatch);
  CHECK(service.server().holder().pull().t() == t);
  frames.close(peers[2]);
  CHECK(service.counters().lost == kBatch);
  service.command(1);  // nobody listens
  service.woken();
  CHECK(service.failure().empty());
}

TEST_CASE("commands come from outside or from a worker, where the mode knows any") {
  const std::vector<float> initial(kFeatures, 1.0f);
  const auto rule = make_rule(kMomentum);
  const DisciplineContext context{initial.data(), kFeatures, 1, 1, *rule};
  std::vector<std::uint32_t> heard;
  const PolicyService::Heard listens = [&](const modes::Event& event, Time) {
    if (event.kind == modes::Event::Kind::command) heard.push_back(event.argument);
  };
  for (const bool knows : {true, false}) {
    heard.clear();
    const Choice mode = knows ? Choice{"gba"} : Choice{"asp"};
    PolicyService service(modes::make_server_policy(with_job(mode, 1, 100)), context, {1, 2, 3},
                          listens);
    Frames frames(service);
    const Peer peer = frames.come();
    frames.say(peer, kModeHello, 0, mode_hello(1, 4, 1, 2));
    Bytes said;
    put(said, ModeCommand{1});
    if (knows) {
      service.command(0);
      frames.say(peer, kModeCommand, 0, said);
      CHECK(heard == std::vector<std::uint32_t>{0, 1});
      CHECK_THROWS_AS(service.command(7), Error);
    } else {
      CHECK_THROWS_WITH_AS(service.command(0), doctest::Contains("knows no commands"), Error);
      CHECK_THROWS_AS(frames.say(peer, kModeCommand, 0, said), Error);
    }
    CHECK(service.failure().empty());
    CHECK_THROWS_AS(frames.say(peer, kModeCommand, 0, {}), Error);
  }
}

TEST_CASE("leases of who hangs go to who waits, each when its term is over") {
  const std::vector<float> initial(kFeatures, 1.0f);
  const auto rule = make_rule(kMomentum);
  const DisciplineContext context{initial.data(), kFeatures, 3, 1, *rule};
  Choice mode = with_job({"asp"}, 3, 2 * kBatch);
  mode.settings["term_ns"] = 1e6;
  PolicyService service(modes::make_server_policy(mode), context, {1, 2, 3});
  Frames frames(service);
  const std::vector<Peer> peers = some_that_pull(frames, 3, 300'000);
  Bytes values;
  put(values, std::vector<float>(kFeatures, 0.5f));
  auto& box = frames.post.boxes[peers[2]];
  for (int lease = 0; lease < 2; ++lease) {
    CHECK(box.empty());
    REQUIRE(frames.post.wake_at < HeldPost::kNever);
    frames.post.time =
        std::max(frames.post.time, std::exchange(frames.post.wake_at, HeldPost::kNever));
    service.woken();
    REQUIRE(box.size() == 1);
    frames.say(peers[2], kModePushPull, frames.post.take(peers[2]).first.correlation, values);
  }
  CHECK(frames.post.take(peers[2]).first.kind == kModeEnd);
  for (std::size_t i = 0; i < 2; ++i) {  // who comes back is late
    frames.say(peers[i], kModePushPull, frames.post.take(peers[i]).first.correlation, values);
    CHECK(frames.post.take(peers[i]).first.kind == kModeEnd);
  }
  CHECK(service.server().counts().late == 2 * kBatch);
  CHECK(service.server().counts().applied == 2 * kBatch);
  CHECK(service.counters().lost == 0);
}

// No two connections are the same here, so that none of what is said helps the next.
TEST_CASE("frames of any kind, length and content change nothing that is not theirs") {
  const std::vector<float> initial(kFeatures, 1.0f);
  const auto rule = make_rule(kMomentum);
  const DisciplineContext context{initial.data(), kFeatures, 3, 1, *rule};
  PolicyService service(modes::make_server_policy(with_job({"gba"}, 2, 0)), context, {1, 2, 3});
  Frames frames(service);
  std::mt19937 random(11);
  Bytes good;
  put(good, std::vector<float>(kFeatures, 1e-3f));
  std::vector<Peer> peers;
  const std::uint64_t most_letters = Post::kBacklog + 1;
  std::uint64_t refused = 0, pushed = 0;
  for (std::size_t i = 0; i < frames_of_any_kind(100'000); ++i) {
    if (peers.size() < 6) {
      peers.push_back(frames.come());
      if (random() % 4 > 0) {
        Bytes hello = mode_hello(1, random() % 4, 1 + i / 64, 2);
        if (random() % 8 == 0) hello[random() % hello.size()] = static_cast<std::byte>(random());
        try {
          frames.say(peers.back(), kModeHello, 0, hello);
        } catch (const Error&) {
          ++refused;
          frames.close(peers.back());
          peers.pop_back();
        }
      }
      continue;
    }
    const std::size_t which = random() % peers.size();
    const Peer peer = peers[which];
    if (frames.post.refused.contains(peer)) {
      frames.close(peer);
      peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    std::uint64_t ticket = random() % 4 == 0 ? random() : 0;
    CHECK(frames.post.boxes[peer].size() <= most_letters);
    while (!frames.post.boxes[peer].empty()) {
      const auto [header, bytes] = frames.post.take(peer);
      if (header.kind == kGrant && random() % 16 > 0) ticket = header.correlation;
    }
    const std::uint16_t own = random() % 2 == 0 ? kModePushPull : kModePull;
    const std::uint16_t kind =
        random() % 4 > 0 ? own : static_cast<std::uint16_t>(random() % kKinds);
    Bytes payload = kind == kModePush || kind == kModePushPull ? good : Bytes{};
    if (random() % 16 == 0) payload.resize(random() % 80);
    if (random() % 8 == 0 && !payload.empty()) {
      payload[random() % payload.size()] = static_cast<std::byte>(random());
    }
    if (payload.size() > kModeLimits[kind]) continue;  // of which the parser lets nothing through
    frames.post.time += static_cast<std::int64_t>(random() % 100);
    try {
      const std::uint64_t before = service.counters().pushes;
      frames.say(peer, kind, ticket, payload);
      pushed += service.counters().pushes - before;
    } catch (const Error&) {
      ++refused;
      frames.close(peer);
      peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(which));
    }
    REQUIRE(service.failure().empty());
  }
  CHECK(refused > 0);
  CHECK(pushed > 0);
  CHECK(service.counters().pushes == pushed);
  CHECK(service.counters().lanes <= 3);
  CHECK(service.counters().payload_bytes <= peers.size() * kFeatures * sizeof(float));
}

TEST_CASE("what was not finite has no part in a replay either, and refused commands do nothing") {
  const std::string path = "/tmp/test_policy_service." + std::to_string(getpid());
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const Drawn data;
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode) || mode.name == "ensemble") continue;
    CAPTURE(mode.name);
    const Choice choice = with_job(mode, 1, kExamples);
    const bool refuses = mode.name != "gba" && mode.name != "switching" && mode.name != "automatic";
    const DisciplineContext context{initial.data(), kFeatures, 1, 4, *rule};
    std::vector<float> then;
    std::uint64_t lost = 0;
    {
      TraceWriter writer(path, "{}", initial, 1, 0);
      ModeRecorder recorder(writer);
      then = by_frames(
          choice, context,
          [&](const modes::Event& event, Time at) {
            lost += event.kind == modes::Event::Kind::push && event.version == kNoValues;
            recorder.heard(event, at);
            if (refuses) recorder.heard({.kind = modes::Event::Kind::command, .argument = 1}, at);
          },
          5);
    }
    CHECK(lost >= kExamples / kBatch / 5);
    const Trace trace(path);
    const Replayed made = replay(Squares(), data.view(), modes::make_server_policy(choice), context,
                                 {}, trace, {1, kBatch, kSeed});
    CHECK(made.parameters == then);
  }
  std::filesystem::remove(path);
}

namespace {

// Workers without a will of their own: who has a lease pushes, who has none pulls.
struct Several {
  Several(PolicyService& service, std::size_t count, std::mt19937& draws)
      : frames(service), random(draws) {
    for (std::uint64_t client = 0; client < count; ++client) {
      peers.push_back(frames.come());
      frames.say(peers.back(), kModeHello, 0, mode_hello(1, client, 1, 2));
      frames.post.take(peers.back());
      frames.say(peers.back(), kModePull, 0, {});
      tickets.push_back(0);
    }
  }
  // Whether anybody has done anything.
  bool step() {
    bool some = false;
    for (std::size_t w = 0; w < peers.size(); ++w) {
      frames.post.time += 7;
      auto& box = frames.post.boxes.at(peers[w]);
      if (!box.empty()) {
        const auto [header, bytes] = frames.post.take(peers[w]);
        if (header.kind == kModeEnd) {
          ++ended;
        } else {
          GrantHead head;
          std::memcpy(&head, bytes.data(), sizeof head);
          if (head.count > 0) tickets[w] = head.ticket;
        }
        some = true;
      } else if (tickets[w] != 0 && random() % 2 == 0) {
        Bytes values;
        put(values, std::vector<float>(kFeatures, 0.25f));
        frames.say(peers[w], kModePushPull, std::exchange(tickets[w], 0), values);
        some = true;
      }
    }
    return some || std::ranges::any_of(tickets, [](std::uint64_t one) { return one != 0; });
  }

  Frames frames;
  std::mt19937& random;
  std::vector<Peer> peers;
  std::vector<std::uint64_t> tickets;
  std::size_t ended = 0;
};

std::uint64_t settled(const PolicyService& service, bool exchanges) {
  const ModeCounts& counts = service.server().counts();
  return exchanges ? counts.exchanges * kBatch
                   : counts.applied + counts.stale + counts.straggler + counts.missing;
}

}  // namespace

TEST_CASE("a server goes on from a checkpoint with any number of workers, and no example is lost") {
  std::mt19937 random(17);
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  for (const Choice& mode : all_modes()) {
    if (!has_server(mode) || mode.name == "ensemble") continue;
    for (std::size_t workers = 1; workers <= 4; ++workers) {
      for (const std::size_t then : {1, 2, 3, 5}) {
        CAPTURE(mode.name);
        CAPTURE(workers);
        CAPTURE(then);
        const Choice choice = with_job(mode, static_cast<double>(workers), kExamples);
        const modes::ServerPolicy machine = modes::make_server_policy(choice);
        DisciplineContext context{initial.data(), kFeatures, workers, 1, *rule};
        PolicyService service(machine, context, {1, 2, 3});
        Several before(service, workers, random);
        for (std::size_t steps = random() % 60; steps > 0; --steps) before.step();
        service.hold(true);
        while (!service.at_rest()) REQUIRE(before.step());
        const Checkpoint taken = service.take({}).state;
        const std::uint64_t nodes = service.server().nodes();
        const std::uint64_t done = settled(service, mode.name == "easgd");
        // Who was held goes on as if nothing had been.
        service.hold(false);
        while (before.step()) continue;
        CHECK(before.ended == workers);
        CHECK(settled(service, mode.name == "easgd") == kExamples);

        context.workers = nodes;
        const Layout layout = Updater(context).layout();
        require_fit(taken, layout, context.sparse);
        const Resumed resumed(taken, layout, context.staleness, context);
        const PolicyService::Begun begun{taken.mode, then};
        PolicyService other(machine, context, {1, 2, 4}, nullptr, nullptr, &begun);
        Several after(other, then, random);
        CHECK(other.server().holder().pull().t() >= taken.position.updates);
        while (after.step()) continue;
        CHECK(after.ended == then);
        CHECK(done + settled(other, mode.name == "easgd") == kExamples);
      }
    }
  }
}

TEST_CASE("of a run that goes on, nodes for which nobody comes are let go") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const Choice choice = with_job({"sync"}, 3, kExamples);
  const modes::ServerPolicy machine = modes::make_server_policy(choice);
  DisciplineContext context{initial.data(), kFeatures, 3, 1, *rule};
  std::mt19937 random(3);
  PolicyService service(machine, context, {1, 2, 3});
  Several before(service, 3, random);
  for (int i = 0; i < 20; ++i) before.step();
  service.hold(true);
  while (!service.at_rest()) REQUIRE(before.step());
  const Checkpoint taken = service.take({}).state;
  const Layout layout = Updater(context).layout();
  const Resumed resumed(taken, layout, context.staleness, context);
  const PolicyService::Begun begun{taken.mode, 3};
  PolicyService other(machine, context, {1, 2, 4}, nullptr, nullptr, &begun);
  Several after(other, 2, random);
  for (int i = 0; i < 100; ++i) after.step();
  CHECK(after.ended == 0);  // they wait for the third
  other.let_go_absent();
  while (after.step()) continue;
  CHECK(after.ended == 2);
}

TEST_CASE("what a server goes on from is not believed") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const modes::ServerPolicy machine = modes::make_server_policy(with_job({"gba"}, 2, kExamples));
  DisciplineContext context{initial.data(), kFeatures, 2, 1, *rule};
  std::mt19937 random(3);
  PolicyService service(machine, context, {1, 2, 3});
  Several before(service, 2, random);
  for (int i = 0; i < 20; ++i) before.step();
  service.hold(true);
  while (!service.at_rest()) REQUIRE(before.step());
  const Checkpoint taken = service.take({}).state;
  for (std::size_t i = 0; i < taken.mode.words.size(); ++i) {
    Archived other = taken.mode;
    other.words[i] ^= std::uint64_t{1} << (random() % 64);
    const PolicyService::Begun begun{other, 2};
    try {
      PolicyService again(machine, context, {1, 2, 4}, nullptr, nullptr, &begun);
    } catch (const Error&) {
    }
  }
  Archived cut = taken.mode;
  cut.words.pop_back();
  const PolicyService::Begun begun{cut, 2};
  CHECK_THROWS_AS(PolicyService(machine, context, {1, 2, 4}, nullptr, nullptr, &begun), Error);
}

TEST_CASE("a server that is started again has also who waits and was granted nothing yet") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const modes::ServerPolicy machine = modes::make_server_policy(with_job({"asp"}, 1, 2 * kBatch));
  DisciplineContext context{initial.data(), kFeatures, 1, 1, *rule};
  PolicyService first(machine, context, {1, 2, 3});
  const Checkpoint begins = [&] {
    Frames frames(first);
    return first.take({}).state;
  }();
  // Two come to what one worker has begun, and of the last batch one has nothing to do.
  const PolicyService::Begun of_one{begins.mode, 2};
  PolicyService before(machine, context, {1, 2, 3}, nullptr, nullptr, &of_one);
  Frames frames(before);
  const std::vector<Peer> one = some_that_pull(frames, 1);
  push_and_pull(frames, one[0]);
  const Peer waits = frames.come();
  frames.say(waits, kModeHello, 0, mode_hello(1, 1, 1, 2));
  frames.say(waits, kModePull, 0, {});
  const Checkpoint taken = before.take({}).state;
  const Archived served = before.served();
  REQUIRE(before.server().nodes() == 2);

  context.workers = before.server().nodes();
  const Layout layout = Updater(context).layout();
  require_fit(taken, layout, context.sparse);
  const Resumed resumed(taken, layout, context.staleness, context);
  const PolicyService::Begun begun{taken.mode, 2, false, &served};
  PolicyService again(machine, context, {1, 2, 3}, nullptr, nullptr, &begun);
  Frames after(again);
  const std::vector<Peer> two = some_that_pull(after, 2);
  push_and_pull(after, two[0]);
  CHECK(again.server().counts().applied == 2 * kBatch);
  for (const Peer peer : two) CHECK(after.post.take(peer).first.kind == kModeEnd);
}

TEST_CASE("who has left is not told the end that was held back for it") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const modes::ServerPolicy machine = modes::make_server_policy(with_job({"asp"}, 2, 2 * kBatch));
  PolicyService::Run run{1, 2, 3};
  run.holds_end = true;
  PolicyService service(machine, {initial.data(), kFeatures, 2, 1, *rule}, run);
  Frames frames(service);
  const std::vector<Peer> two = some_that_pull(frames, 2);
  for (const Peer peer : two) push_and_pull(frames, peer);
  for (const Peer peer : two) CHECK(frames.post.boxes[peer].empty());
  frames.say(two[1], kModeLeave, 0, {});
  service.let_end();
  CHECK(frames.post.take(two[0]).first.kind == kModeEnd);
  CHECK(frames.post.boxes[two[1]].empty());
}

TEST_CASE(
    "the first of several servers that goes on where its run was over says so once it is open") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const modes::ServerPolicy machine = modes::make_server_policy(with_job({"asp"}, 1, kExamples));
  DisciplineContext context{initial.data(), kFeatures, 1, 1, *rule};
  PolicyService::Run run{1, 2, 3};
  run.followers = 1;
  PolicyService service(machine, context, run);
  Frames frames(service);
  push_and_pull(frames, some_that_pull(frames, 1)[0]);
  const Checkpoint taken = service.take({}).state;
  const Layout layout = Updater(context).layout();
  const Resumed resumed(taken, layout, context.staleness, context);
  const PolicyService::Begun begun{taken.mode, 1};
  run.updates = taken.position.updates;
  PolicyService over(machine, context, run, nullptr, nullptr, &begun);
  CHECK(over.position() == 1);  // what is told to those behind it
  Frames after(over);
  const Peer peer = some_that_pull(after, 1)[0];
  CHECK(after.post.take(peer).first.kind == kModeEnd);
}

TEST_CASE("a command behind the end is heard, and counted") {
  const auto rule = make_rule(kMomentum);
  const std::vector<float> initial(kFeatures, 0.25f);
  const modes::ServerPolicy machine = modes::make_server_policy(with_job({"gba"}, 1, kExamples));
  PolicyService service(machine, {initial.data(), kFeatures, 1, 1, *rule}, {1, 2, 3});
  const Frames frames(service);
  service.command(0);
  service.finish();
  service.command(1);
  CHECK(service.counters().commands == 2);
}
