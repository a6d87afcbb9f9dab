// Workers who sum their gradients among themselves, led by a policy server, over sockets: a server
// that sums has the same bits; and whatever is switched, cut off and killed, each example is in the
// parameters once, or counted as lost with all who had it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "asked.h"
#include "cluster/policy_world.h"
#include "cluster/summing_world.h"

using namespace leashed;

namespace {

// Members who say what they please, without sockets.
struct Told {
  explicit Told(const ReduceJob& job)
      : service(job.machine, job.context(2),
                {kReduceRun, kReduceTerms, kReduceBoot, 0, false, true}, nullptr, nullptr, nullptr,
                job.make_holder()) {
    service.open(post);
    for (const Peer peer : {1, 2}) {
      service.come(peer);
      post.boxes[peer];
      say(peer, kModeHello, mode_hello(kReduceRun, peer, 1, kReduceTerms));
      post.take(peer);
      say(peer, kModePull, {});
    }
  }
  void say(Peer peer, std::uint16_t kind, const Bytes& payload, std::uint64_t correlation = 0) {
    const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
    const std::span<std::byte> place = service.place(peer, header);
    if (!payload.empty()) std::memcpy(place.data(), payload.data(), payload.size());
    service.frame(peer, header, none);
  }
  void vote(Peer peer, std::uint64_t epoch, std::uint32_t checksum) {
    Bytes bytes;
    put(bytes, RoundVote{epoch, checksum});
    say(peer, kRoundVote, bytes);
  }
  RoundHead round(Peer peer) {
    const auto [header, bytes] = post.take(peer);
    REQUIRE(header.kind == kRound);
    RoundHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    return head;
  }

  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  };
  None none;
  HeldPost post;
  PolicyService service;
};

// A lane of two nodes that is told by hand what its server says.
struct Hearing {
  Hearing(const ReduceJob& job, double patience, std::uint32_t node)
      : rounds(job.context(1), patience) {
    rounds.welcome({kReduceBoot, kFeatures, kBatch, node, 0, 2});
  }
  void hear(std::uint16_t kind, const Bytes& bytes) {
    const FrameHeader header{.kind = kind, .length = bytes.size()};
    std::memcpy(rounds.place(header).data(), bytes.data(), bytes.size());
    rounds.understand(header);
  }
  // Node 1 gives, and node 0 does not. ticket: this one's; 0: it has none.
  void hear_round(std::uint64_t ticket = 0) {
    Bytes round;
    RoundHead began{};
    began.epoch = began.base = began.giving = 1;
    began.ticket = ticket;
    began.members = 2;
    put(round, began);
    for (const std::uint32_t node : {1, 0}) put(round, RoundSeat{100 * node + 7, 1, node});
    hear(kRound, round);
  }
  void hear_state(const ReduceJob& job) {
    const StateHead head{1, 0, {}};
    Bytes state(sizeof head + Updater(job.context(1)).layout().length() * sizeof(float));
    std::memcpy(state.data(), &head, sizeof head);
    hear(kRoundState, state);
  }

  LaneRounds rounds;
};

}  // namespace

TEST_CASE("Sync by all-reduce has the bits of Sync by the server") {
  const std::vector<Choice> rules = {
      kMomentum,
      {"adam", {{"lr", 0.02}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}},
      {"sgd", {{"lr", 0.05}, {"clip_norm", 0.01}}}};
  for (const Choice& rule : rules) {
    for (const std::vector<std::size_t>& lanes :
         {std::vector<std::size_t>{1}, {2}, {1, 1, 1}, {3, 2}}) {
      double workers = 0;
      for (const std::size_t each : lanes) workers += static_cast<double>(each);
      CAPTURE(rule.name);
      CAPTURE(workers);
      for (const bool rows : {false, true}) {
        CAPTURE(rows);
        const std::size_t servers = rule.value("clip_norm", 0) > 0 ? 1 : 1 + lanes.size() % 3;
        CAPTURE(servers);
        const SummedEnd by_server =
            sums_trained(ReduceJob({"sync"}, workers, kExamples, rule, rows), lanes, false);
        const SummedEnd summed =
            sums_trained(ReduceJob({"sync"}, workers, kExamples, rule, rows, servers), lanes, true);
        CHECK(summed.updates == by_server.updates);
        CHECK(summed.theta == by_server.theta);
        CHECK(summed.rows == by_server.rows);
        CHECK(summed.theta != std::vector<float>(kFeatures, 0.25f));
        CHECK(summed.counts.applied == kExamples);
        CHECK(summed.counts.rows.applied + summed.counts.rows.folded == (rows ? kExamples : 0));
      }
    }
  }
}

TEST_CASE("a switch changes no bit") {
  std::mt19937 random(3);
  const ReduceJob plain({"sync"}, 1);
  const SummedEnd by_server = sums_trained(plain, {1}, false);
  const ReduceJob job({"switching", {{"m", 1}}}, 1);
  std::uint64_t homes = 0;
  for (int i = 0; i < 10; ++i) {
    PolicyServer server = job.serve();
    const SlowGradient slow = [](const std::atomic<bool>&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    Summed all{server};
    all.processes.push_back(std::make_unique<Summing>(job, 1, 1, 1, slow));
    std::uint32_t to = 0;
    REQUIRE(comes_true([&] {
      if (random() % 4 == 0) {
        server.quiet([&](PolicyService& service) { service.command(to = 1 - to); });
      }
      return all.tend();
    }));
    CHECK(all.processes[0]->failure() == "");
    CHECK(summed_end(job, all).theta == by_server.theta);
    homes += server.counters().rounds.homes;
  }
  CHECK(homes > 20);
}

TEST_CASE("whoever dies or is cut off in whatever switch, each example is once in it, or lost") {
  std::uint64_t deaths = 0, cuts = 0, updates = 0, pushes = 0, homes = 0, lost = 0, row_sums = 0,
                holds_over = 0;
  for (std::uint64_t seed = 0; seed < asked_for("LEASHED_SCHEDULES", 50); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    const std::size_t count = 1 + random() % 4;
    const Choice modes[] = {{"sync"},
                            {"switching", {{"m", 2}, {"iota", 1}}},
                            {"automatic", {{"m", 2}, {"window_ns", 5e6}, {"windows", 1}}}};
    const bool rows = seed % 2 == 1;
    const ReduceJob job(modes[random() % 3], static_cast<double>(count), kExamples, kMomentum, rows,
                        1 + seed / 2 % 3);
    PolicyServer server = job.serve();
    const SlowGradient slow = [&](const std::atomic<bool>&) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    };
    Summed all{server};
    all.serve_parts(job);
    std::uint64_t life = 1;
    for (std::size_t i = 0; i < count; ++i) {
      all.processes.push_back(std::make_unique<Summing>(job, 1, i + 1, life, slow));
    }
    const bool gentle = random() % 3 == 0;
    int faults = 8;
    bool holds = false;  // as for a checkpoint
    std::uint64_t rest = 0;
    std::vector<float> theta;
    REQUIRE(comes_true([&] {
      server.quiet([&](PolicyService& service) {
        if (!holds && random() % 10 == 0) service.hold(holds = true);
        if (!holds || !service.at_rest()) return;
        const ParameterVector::Pin here = service.server().holder().pull();
        CHECK(service.server().updates() == here.t());
        if (theta.empty()) {
          theta.assign(here.data(), here.data() + job.shards.size(0));
          rest = here.t();
        }
        CHECK(here.t() == rest);
        CHECK(std::equal(theta.begin(), theta.end(), here.data()));
        if (random() % 4 != 0) return;
        ++holds_over;
        theta.clear();
        service.hold(holds = false);
      });
      if (!all.others.empty() && random() % 4 == 0) {  // which hears late, and of several at once
        all.others[random() % all.others.size()]->quiet(
            [](PartService&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
      }
      if (faults > 0 && random() % 6 == 0) {
        --faults;
        auto& process = all.processes[random() % count];
        switch (random() % 4) {
          case 0:
            if (process->ended()) break;
            ++deaths;
            if (!gentle) process->kill();
            process.reset();
            process =
                std::make_unique<Summing>(job, 1, 1 + (&process - &all.processes[0]), ++life, slow);
            break;
          case 1:
            ++cuts;
            process->cut(0);
            break;
          case 2:
            ++cuts;
            all.cut_any(random);
            break;
          default:
            if (job.choice.name == "switching") {
              server.quiet([&](PolicyService& service) { service.command(random() % 2); });
            }
        }
      }
      return all.tend();
    }));
    for (const auto& each : all.processes) CHECK(each->failure() == "");
    const SummedEnd end = summed_end(job, all);
    CHECK(end.failure == "");
    const PolicyServer::Counters counted = server.counters();
    CHECK(end.counts.applied + end.counts.stale + counted.rounds.lost_examples == kExamples);
    CHECK(end.counts.missing + end.counts.straggler == 0);
    CHECK(counted.strange == 0);
    // (An update that is lost with its members has been made to rows.)
    const std::uint64_t of_rows = end.counts.rows.applied + end.counts.rows.folded;
    const std::uint64_t used = end.counts.applied + counted.rounds.lost_examples;
    CHECK(of_rows <= (rows ? used : 0));
    if (end.missing == 0) CHECK(of_rows == (rows ? used : 0));
    if (job.choice.name == "sync") CHECK(end.missing == 0);
    if (rows) row_sums += counted.rounds.updates;
    updates += counted.rounds.updates;
    pushes += counted.pushes;
    homes += counted.rounds.homes;
    lost += counted.rounds.lost_updates;
  }
  CHECK(deaths > 0);
  CHECK(cuts > 0);
  CHECK(updates > 0);
  CHECK(pushes > 0);
  CHECK(homes > 0);
  CHECK(row_sums > 0);
  CHECK(holds_over > 0);
  MESSAGE(deaths, " deaths, ", cuts, " cuts, ", updates, " sums, ", pushes, " pushes, ", homes,
          " times at home, ", lost, " updates lost");
}

TEST_CASE("where two members have other sums, nothing is applied, and the run ends by that") {
  const ReduceJob job({"sync"}, 2);
  Told told(job);
  const RoundHead one = told.round(1), other = told.round(2);
  CHECK(one.epoch == other.epoch);
  CHECK(one.members == 2);
  CHECK(one.giving == 2);
  CHECK(one.ticket != other.ticket);
  told.vote(1, one.epoch, 5);
  CHECK_THROWS_WITH_AS(told.vote(2, one.epoch, 6), doctest::Contains("is another one"), Error);
  CHECK(told.service.failure().find("nothing of it is applied") != std::string::npos);
  CHECK(told.service.server().updates() == 0);
}

TEST_CASE("a sum without which nobody is gone is begun again, with the same leases") {
  const ReduceJob job({"sync"}, 2);
  Told told(job);
  const RoundHead before = told.round(1);
  told.round(2);
  Bytes bytes;
  put(bytes, RoundEpoch{before.epoch});
  told.say(1, kRoundAgain, bytes);
  const RoundHead after = told.round(1);
  told.round(2);
  CHECK(after.epoch == before.epoch + 1);
  CHECK(after.ticket == before.ticket);
  CHECK(after.version == before.version);
  told.say(2, kRoundAgain, bytes);  // of the one before
  told.vote(2, before.epoch, 5);
  CHECK(told.post.boxes.at(1).empty());
  told.vote(1, after.epoch, 5);
  told.vote(2, after.epoch, 5);
  CHECK(told.round(1).version == 1);
  CHECK(told.service.server().updates() == 1);
  CHECK(told.service.server().holder().pull().t() == 0);
}

TEST_CASE("who says of a round what is none is refused") {
  const ReduceJob job({"sync"}, 2);
  Told told(job);
  CHECK_THROWS_AS(told.say(1, kRoundVote, Bytes(8)), Error);
  CHECK_THROWS_AS(told.say(1, kRoundState, Bytes(64)), Error);
  CHECK_THROWS_AS(told.say(1, kRoundWant, Bytes(8)), Error);
  // Who is a member waits already: what it has been lent stays its own.
  CHECK_THROWS_WITH_AS(told.say(1, kModePull, {}), doctest::Contains("is in a round"), Error);
  const std::uint64_t epoch = told.round(1).epoch;
  for (const Peer peer : {1, 2}) told.vote(peer, epoch, 5);
  CHECK(told.service.server().updates() == 1);
  CHECK_THROWS_AS(ReduceJob({"asp"}, 2).serve(), Error);
  CHECK_THROWS_AS(ReduceJob({"local_sgd", {{"h", 2}}}, 2).serve(), Error);
  CHECK_THROWS_WITH_AS(ReduceJob({"sync"}, 257).serve(), doctest::Contains("at most 256"), Error);
}

TEST_CASE("a lane asks for who is to be called, and is not patient for ever") {
  const ReduceJob job({"sync"}, 2);
  Hearing lane(job, 0, 0);
  lane.hear_round();
  CHECK(lane.rounds.wanted() == std::vector<std::uint64_t>{107});
  CHECK_FALSE(lane.rounds.step());  // it has nothing to give yet
  CHECK_THROWS_AS(lane.hear(kRoundState, Bytes(sizeof(StateHead))), Error);
  lane.hear_state(job);
  const auto waits = [&] {
    while (true) lane.rounds.step();
  };
  CHECK_THROWS_WITH_AS(waits(), doctest::Contains("be more patient"), Error);
  lane.rounds.forget();
  CHECK_FALSE(lane.rounds.step());
}

TEST_CASE("a lane that has its sum begins it again for who calls it anew") {
  const ReduceJob job({"sync"}, 2);
  Hearing lane(job, kLong, 1);
  std::vector<int> others;
  const auto called = [&] {
    const auto [one, other] = pair_over_loopback();
    others.push_back(other);
    lane.rounds.adopt(7, connected(one, kRingLimits, true, Transport::tcp, Role::accepts));
  };
  called();
  lane.hear_round(1);
  lane.hear_state(job);
  const std::vector<float> gradient(kFeatures, 1);
  lane.rounds.computed(gradient.data(), {});
  REQUIRE(comes_true([&] { return lane.rounds.step() && !lane.rounds.sums(); }));
  CHECK_FALSE(lane.rounds.step());
  called();  // since what had gone there is lost
  CHECK(lane.rounds.step());
  CHECK_FALSE(lane.rounds.step());
  for (const int socket : others) close(socket);
}

TEST_CASE("a gradient that is not finite is given to nobody") {
  const ReduceJob job({"sync"}, 1);
  LaneRounds rounds(job.context(1), kLong);
  std::vector<float> gradient(kFeatures, 1);
  gradient[4] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(rounds.computed(gradient.data(), {}), doctest::Contains("is not finite"),
                       Error);
  gradient[4] = 1;
  rounds.computed(gradient.data(), {});
  const float of_rows[] = {1, std::numeric_limits<float>::infinity()};
  const std::span<const std::byte> rows[] = {std::as_bytes(std::span(of_rows))};
  CHECK_THROWS_WITH_AS(rounds.computed(gradient.data(), rows), doctest::Contains("is not finite"),
                       Error);
}

TEST_CASE("gradients of rows come under their lease, before a vote, and whole") {
  const ReduceJob job({"sync"}, 2, kExamples, kMomentum, true);
  Told told(job);
  const RoundHead one = told.round(1), other = told.round(2);
  const auto look_up = [&](Peer peer, const RoundHead& round, std::uint64_t id) {
    told.say(peer, kLookup, lookup_of({{id, id + 1}}, 1), round.ticket);
    const auto [header, bytes] = told.post.take(peer);
    CHECK(header.kind == kRows);
    CHECK(bytes.size() == 2 * kRowFloats * sizeof(float));
  };
  const auto floats = [](std::size_t count, float value) {
    Bytes bytes;
    put(bytes, std::vector<float>(count, value));
    return bytes;
  };
  const auto refused = [&](Peer peer, const Bytes& rows, std::uint64_t ticket, const char* why) {
    CHECK_THROWS_WITH_AS(told.say(peer, kRoundRows, rows, ticket), doctest::Contains(why), Error);
  };
  const Bytes gradients = floats(2 * kRowFloats, 0.5f);
  refused(1, gradients, one.ticket, "other rows than were looked up");
  CHECK_THROWS_AS(told.say(1, kLookup, lookup_of({{1, 2}}, 1), other.ticket), Error);
  look_up(1, one, 1);
  look_up(1, one, 3);  // it has the lease anew
  look_up(2, other, 3);
  refused(1, gradients, other.ticket, "other rows");
  refused(1, floats(kRowFloats, 1), one.ticket, "other rows");
  refused(1, floats(2 * kRowFloats, std::numeric_limits<float>::quiet_NaN()), one.ticket,
          "not finite");
  CHECK_THROWS_WITH_AS(told.vote(1, one.epoch, 5), doctest::Contains("without the gradients"),
                       Error);
  told.say(1, kRoundRows, gradients, one.ticket);
  told.say(2, kRoundRows, gradients, other.ticket);
  const std::vector<float> before = job.rows();
  told.vote(1, one.epoch, 5);
  CHECK(job.rows() == before);
  told.vote(2, one.epoch, 5);
  CHECK(told.service.server().updates() == 1);
  const std::vector<float> after = job.rows();
  for (std::size_t i = 0; i < after.size(); ++i) {
    CAPTURE(i);
    const bool changes = i / kRowFloats == 3 || i / kRowFloats == 4;
    CHECK((after[i] != before[i]) == changes);
  }
  const RowPublication& counts = told.service.server().counts().rows;
  CHECK(counts.applied == 2);
  CHECK(counts.folded == 2);
}

TEST_CASE("a vote for a sum that is over needs no rows of the lease that came behind it") {
  const ReduceJob job({"sync"}, 2, 1, kMomentum, true);  // one batch, of one of the two
  Told told(job);
  const RoundHead one = told.round(1), other = told.round(2);
  const bool first_gives = one.ticket != 0;
  REQUIRE(first_gives != (other.ticket != 0));
  const Peer gives = first_gives ? 1 : 2, sums = 3 - gives;
  told.service.gone(gives);  // whoever has summed with it may not know that yet
  const RoundHead again = told.round(sums);
  CHECK(again.epoch > one.epoch);
  CHECK(again.ticket != 0);
  told.vote(sums, one.epoch, 5);
  CHECK(told.service.counters().strange == 0);
  CHECK(told.service.server().updates() == 0);
  CHECK_THROWS_WITH_AS(told.vote(sums, again.epoch, 5), doctest::Contains("without the gradients"),
                       Error);
}

TEST_CASE("who has given gradients of rows looks up no others under that lease") {
  const ReduceJob job({"sync"}, 2, kExamples, kMomentum, true);
  Told told(job);
  const RoundHead one = told.round(1), other = told.round(2);
  const auto look_up = [&](Peer peer, const RoundHead& round, std::vector<std::uint64_t> ids) {
    told.say(peer, kLookup, lookup_of({std::move(ids)}, 1), round.ticket);
    told.post.take(peer);
  };
  Bytes gradients;
  put(gradients, std::vector<float>(2 * kRowFloats, 0.5f));
  for (const auto& [peer, round] : {std::pair(Peer{1}, one), std::pair(Peer{2}, other)}) {
    look_up(peer, round, {1, 2});
    told.say(peer, kRoundRows, gradients, round.ticket);
  }
  told.vote(1, one.epoch, 5);
  const std::vector<float> before = job.rows();
  CHECK_THROWS_WITH_AS(look_up(1, one, {3, 4, 5, 6}), doctest::Contains("have come"), Error);
  told.vote(2, other.epoch, 5);
  CHECK(told.service.server().updates() == 1);
  const std::vector<float> after = job.rows();
  for (std::size_t i = 0; i < after.size(); ++i) {
    CAPTURE(i);
    const bool changes = i / kRowFloats == 1 || i / kRowFloats == 2;
    CHECK((after[i] != before[i]) == changes);
  }
}
