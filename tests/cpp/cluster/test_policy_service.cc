// What a policy server answers, without a socket or a thread: under schedules of workers that come
// and go, are cut off, hang, and say what does not belong there, each mode does what it does when
// it is told directly.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
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
#include "leashed/modes/policy_threads.h"
#include "leashed/server/own_models.h"
#include "modes/all_modes.h"

using namespace leashed;

namespace {

// LEASHED_SCHEDULES: how many of each mode; by hand.
std::size_t schedules_of_each(std::size_t few) { return asked_for("LEASHED_SCHEDULES", few); }

// LEASHED_FUZZ: how many frames; ten million by hand.
std::size_t frames_of_any_kind(std::size_t few) { return asked_for("LEASHED_FUZZ", few); }

// Hands frames in, and nothing else.
struct Frames {
  explicit Frames(PolicyService& s) : service(s) { service.open(post); }
  Peer come() {
    service.come(++last);
    post.boxes[last];
    return last;
  }
  void say(Peer peer, std::uint16_t kind, std::uint64_t correlation, const Bytes& payload) {
    const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
    const std::span<std::byte> place = service.place(peer, header);
    REQUIRE(place.size() == payload.size());
    if (!payload.empty()) std::memcpy(place.data(), payload.data(), payload.size());
    service.frame(peer, header, none);
  }
  void close(Peer peer) {
    post.boxes.erase(peer);
    post.refused.erase(peer);
    service.gone(peer);
  }
  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  };
  PolicyService& service;
  HeldPost post;
  None none;
  Peer last = 0;
};

// What one worker makes over frames, by the worker's own rule (policy/worker_rule.h).
std::vector<float> by_frames(const Choice& mode, const DisciplineContext& context) {
  const Squares source;
  const Drawn data;
  const modes::ServerPolicy machine = modes::make_server_policy(mode);
  PolicyService service(machine, context, {1, 2, 3});
  Frames frames(service);
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
    Bytes payload;
    put(payload, sent);
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
