// Rounds of all-reduce between a leader and members who die, come, and are taken for dead, and the
// way from a server and back: by random schedules, against what models/ar_ps.pml says.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"
#include "leashed/server/aggregator.h"
#include "leashed/server/reduced_rounds.h"
#include "leashed/server/weighted_mean.h"

using namespace leashed;

namespace {

using Theta = std::vector<float>;

constexpr std::size_t kDimension = 9, kAnUpdate = 2;  // gradients, at the server

Theta gradient_of(const Theta& theta, std::uint64_t batch) {
  std::mt19937_64 random(batch + 1);
  std::normal_distribution<float> normal;
  Theta gradient(kDimension);
  for (std::size_t i = 0; i < kDimension; ++i) {
    gradient[i] = std::ldexp(normal(random), static_cast<int>(random() % 12) - 6) + theta[i] / 8;
  }
  return gradient;
}

void step_by(Theta& theta, const float* mean) {
  for (std::size_t i = 0; i < kDimension; ++i) theta[i] -= 0.25f * mean[i];
}

// As each part's owner does it.
Theta mean_of(const std::vector<Theta>& gradients) {
  std::vector<const float*> all;
  for (const Theta& each : gradients) all.push_back(each.data());
  WeightedMean mean;
  mean.begin(std::vector<double>(all.size(), 1.0), static_cast<double>(all.size()));
  Theta sum(kDimension);
  mean.add(sum.data(), all, 0, kDimension);
  return sum;
}

// As a server does it that has all of them.
void by_server(Theta& theta, const std::vector<Theta>& gradients) {
  Aggregator aggregator(kDimension);
  std::vector<Aggregator::Part> parts;
  for (const Theta& each : gradients) {
    AlignedArray<float> values(kDimension);
    std::ranges::copy(each, values.data());
    parts.push_back({static_cast<std::uint32_t>(parts.size()), 1});
    aggregator.hold(parts.back().slot, values);
  }
  const float* const mean = aggregator.begin(parts, static_cast<double>(gradients.size()));
  aggregator.add(0, kDimension);
  step_by(theta, mean);
}

struct Want {
  std::uint64_t version;
};
struct Leave {};
struct Grant {
  RoundTicket ticket;
  Theta theta;
};
struct Push {
  RoundTicket ticket;
  Theta gradient;
};
struct Replica {
  std::uint64_t version;
  Theta theta;
};

struct Worker {
  RoundMember member;
  bool alive = true;
  Theta theta, gradient, mean;
  std::optional<Grant> grant;
  std::deque<std::variant<ReducedRound, Want, Leave, Grant>> to_hear;
  std::deque<std::variant<RoundMember::Vote, Push, Replica>> to_tell;
};

struct Play final : RoundHost {
  Play(std::uint64_t seed, std::size_t batches, std::size_t workers, std::size_t deaths,
       std::size_t switches)
      : random(seed), batches(batches), deaths(deaths), switches(switches), wanted(chance(2)) {
    for (std::uint64_t b = 0; b < batches; ++b) to_lend.insert(b);
    truth.push_back(Theta(kDimension, 1));
    at_server = truth.back();
    leader.want_server(!wanted);
    for (std::size_t i = 0; i < workers; ++i) come();
  }

  // What the leader asks.

  std::optional<RoundTicket> lend(Life) override {
    if (to_lend.empty()) return std::nullopt;
    const RoundTicket ticket{++tickets, *to_lend.begin()};
    to_lend.erase(to_lend.begin());
    return ticket;
  }
  void give_back(const RoundTicket& ticket) override {
    REQUIRE(!applied.contains(ticket.batch));
    REQUIRE(to_lend.insert(ticket.batch).second);
    gone_tickets.insert(ticket.number);
  }
  void update(std::span<const RoundTicket> of) override {
    Theta theta = truth.back();
    std::vector<Theta> gradients;
    std::vector<std::uint64_t> named;
    for (const RoundTicket& each : of) {
      gradients.push_back(gradient_of(theta, each.batch));
      REQUIRE(rows.contains(each.number));
      REQUIRE(!gone_tickets.contains(each.number));
      named.push_back(each.batch);
    }
    REQUIRE(std::ranges::is_sorted(named));
    by_server(theta, gradients);
    log(theta, named);
    ++reduced;
  }
  void say(Life life, const ReducedRound& round) override {
    REQUIRE(round.version == truth.size() - 1);
    begun[round.epoch] = truth.back();
    workers.at(life)->to_hear.push_back(round);
  }
  void want(Life life, std::uint64_t version) override {
    workers.at(life)->to_hear.push_back(Want{version});
  }
  void came_home(std::uint64_t count) override {
    lost_updates += count;
    for (; count > 0; --count) {
      for (const std::uint64_t batch : logged.back()) {
        REQUIRE(applied.erase(batch) == 1);
        lost.insert(batch);
      }
      logged.pop_back();
      truth.pop_back();
    }
    REQUIRE(leader.version() == truth.size() - 1);
    REQUIRE(at_server == truth.back());
    for (const Life life : there) workers.at(life)->to_hear.push_back(Leave{});
    parked = there;
    ++homes;
  }

  // The server, which has no more than it needs.

  void log(const Theta& theta, const std::vector<std::uint64_t>& of) {
    REQUIRE(!of.empty());
    for (const std::uint64_t batch : of) {
      REQUIRE(!lost.contains(batch));
      REQUIRE(applied.insert(batch).second);
    }
    truth.push_back(theta);
    logged.push_back(of);
  }
  void progress() {
    if (leader.running()) return;
    if (!held.empty() && (held.size() == kAnUpdate || (to_lend.empty() && out.empty()))) {
      std::vector<Theta> gradients;
      std::vector<std::uint64_t> of;
      for (auto& [batch, gradient] : held) {
        of.push_back(batch);
        gradients.push_back(std::move(gradient));
      }
      held.clear();
      by_server(at_server, gradients);
      log(at_server, of);
    }
    if (wanted && held.empty() && out.empty() && !there.empty() && !to_lend.empty()) {
      parked.clear();
      ++reduces;
      return leader.begin(truth.size() - 1);
    }
    for (const Life life : std::set(parked)) {
      if (to_lend.empty() || (wanted && (held.size() + out.size()) % kAnUpdate == 0)) break;
      parked.erase(life);
      out[life] = *lend(life);
      workers.at(life)->to_hear.push_back(Grant{out[life], at_server});
    }
  }

  // Who is there.

  void come() {
    const Life life = ++lives;
    workers[life] = std::make_unique<Worker>();
    there.insert(life);
    parked.insert(life);
    leader.come(life);
    progress();
  }
  void notice(Life life) {  // whether it lives or not
    there.erase(life);
    parked.erase(life);
    if (const auto found = out.find(life); found != out.end()) {
      give_back(found->second);
      out.erase(found);
    }
    leader.gone(life);
    progress();
  }

  void hear(Worker& worker) {
    const auto message = worker.to_hear.front();
    worker.to_hear.pop_front();
    if (const auto* const round = std::get_if<ReducedRound>(&message)) {
      if (worker.member.hear(*round)) applies(worker);
      if (!worker.member.to_take()) REQUIRE(worker.theta == begun.at(round->epoch));
    } else if (const auto* const want = std::get_if<Want>(&message)) {
      if (worker.member.send_home(want->version)) applies(worker);
      worker.to_tell.push_back(Replica{worker.member.version(), worker.theta});
    } else if (const auto* const grant = std::get_if<Grant>(&message)) {
      worker.grant = *grant;
    } else {
      worker.member.leave();
    }
  }
  void applies(Worker& worker) { step_by(worker.theta, worker.mean.data()); }
  void told(Life life, Worker& worker) {
    const auto message = worker.to_tell.front();
    worker.to_tell.pop_front();
    if (const auto* const vote = std::get_if<RoundMember::Vote>(&message)) {
      leader.vote(life, vote->epoch, vote->checksum);
    } else if (!there.contains(life)) {
      return;
    } else if (const auto* const replica = std::get_if<Replica>(&message)) {
      if (leader.running()) at_server = replica->theta;
      leader.state(life, replica->version);
    } else {
      const Push& push = std::get<Push>(message);
      REQUIRE(out.at(life) == push.ticket);
      out.erase(life);
      held[push.ticket.batch] = push.gradient;
      parked.insert(life);
    }
    progress();
  }

  // One of the things that a worker can do.
  void act(Life life, Worker& worker) {
    RoundMember& member = worker.member;
    if (worker.grant) {
      const Grant grant = *std::exchange(worker.grant, std::nullopt);
      worker.to_tell.push_back(Push{grant.ticket, gradient_of(grant.theta, grant.ticket.batch)});
      return;
    }
    const ReducedRound& round = member.round();
    if (member.to_take()) {
      if (round.holders.empty()) {
        if (leader.running() && leader.epoch() == round.epoch) {
          worker.theta = at_server;
          member.took(round.epoch);
        }
      } else {
        const Worker& holder = *workers.at(round.holders[random() % round.holders.size()]);
        if (!holder.alive || !holder.member.holds(round.epoch, round.version)) return;
        worker.theta = holder.theta;
        member.took(round.epoch);
      }
      if (!member.to_take()) REQUIRE(worker.theta == begun.at(round.epoch));
    } else if (member.to_compute()) {
      worker.gradient = gradient_of(worker.theta, round.ticket->batch);
      on_way.push_back({life, *round.ticket});
      member.computed(*round.ticket);
    } else if (member.to_give()) {
      given[round.epoch][life] = round.ticket ? worker.gradient : Theta();
      member.gave();
    } else if (given.contains(round.epoch) && given[round.epoch].size() == round.members.size()) {
      std::vector<Theta> gradients;
      for (std::size_t i = 0; i < round.giving; ++i) {
        gradients.push_back(given[round.epoch].at(round.members[i]));
      }
      const Theta mean = mean_of(gradients);
      member.summed(round.epoch, crc32c(mean.data(), kDimension * sizeof(float)));
      if (const auto vote = member.vote()) {
        worker.mean = mean;
        worker.to_tell.push_back(*vote);
      }
    }
  }
  void arrive() {
    if (on_way.empty()) return;
    const std::size_t which = random() % on_way.size();
    const auto [life, ticket] = on_way[which];
    on_way.erase(on_way.begin() + static_cast<std::ptrdiff_t>(which));
    if (gone_tickets.contains(ticket.number)) return;
    rows.insert(ticket.number);
    workers.at(life)->member.rows_are_there(ticket);
  }

  bool over() const { return to_lend.empty() && out.empty() && held.empty() && !leader.running(); }
  bool chance(std::uint64_t of) { return random() % of == 0; }

  void run() {
    const std::size_t some = 20 + random() % 200;  // between two misfortunes
    for (std::size_t turn = 0; !over(); ++turn) {
      REQUIRE(turn < 200'000);
      if (deaths > 0 && chance(some) && !there.empty()) {
        --deaths;
        const Life life = *std::next(there.begin(), static_cast<int>(random() % there.size()));
        if (chance(2)) workers.at(life)->alive = false;
        if (chance(2)) notice(life);
      }
      if (switches > 0 && chance(some)) {
        --switches;
        wanted = !wanted;
        leader.want_server(!wanted);
        progress();
      }
      const auto at = std::next(workers.begin(), static_cast<int>(random() % workers.size()));
      const Life life = at->first;
      Worker& worker = *at->second;
      if (!worker.alive) {
        if (there.contains(life)) {
          if (chance(10)) notice(life);
        } else if (chance(10)) {
          come();
          workers.erase(life);
          std::erase_if(on_way, [&](const auto& each) { return each.first == life; });
        }
        continue;
      }
      if (!there.contains(life) && chance(20)) worker.alive = false;  // it notices
      switch (random() % 4) {
        case 0:
          if (!worker.to_hear.empty()) hear(worker);
          break;
        case 1:
          if (!worker.to_tell.empty()) told(life, worker);
          break;
        case 2:
          arrive();
          break;
        default:
          act(life, worker);
      }
    }
    std::set<std::uint64_t> all = applied;
    all.insert(lost.begin(), lost.end());
    REQUIRE(all.size() == batches);
    REQUIRE(applied.size() + lost.size() == batches);
    REQUIRE(at_server == truth.back());
  }

  std::mt19937_64 random;
  const std::size_t batches;
  std::size_t deaths, switches;
  bool wanted;
  RoundLeader leader{*this};
  Life lives = 0;
  std::map<Life, std::unique_ptr<Worker>> workers;
  std::set<Life> there, parked;
  std::map<Life, RoundTicket> out;
  std::map<std::uint64_t, Theta> held;  // by batch
  std::uint64_t tickets = 0;
  std::set<std::uint64_t> to_lend, applied, lost, gone_tickets, rows;
  std::vector<std::pair<Life, RoundTicket>> on_way;
  std::map<std::uint64_t, std::map<Life, Theta>> given;  // by epoch
  std::vector<Theta> truth;                              // by version
  std::vector<std::vector<std::uint64_t>> logged;
  std::map<std::uint64_t, Theta> begun;  // by epoch, what all begin from
  Theta at_server;
  std::uint64_t reduced = 0, homes = 0, reduces = 0, lost_updates = 0;
};

// A leader whose words are kept.
struct Words final : RoundHost {
  std::optional<RoundTicket> lend(Life) override {
    if (next == batches) return std::nullopt;
    ++next;
    return RoundTicket{next, 100 - next};
  }
  void give_back(const RoundTicket& ticket) override { back.push_back(ticket); }
  void update(std::span<const RoundTicket> tickets) override {
    updates.emplace_back(tickets.begin(), tickets.end());
  }
  void say(Life life, const ReducedRound& round) override { said[life] = round; }
  void want(Life life, std::uint64_t version) override { wanted.push_back({life, version}); }
  void came_home(std::uint64_t count) override { home.push_back(count); }

  void begin(std::size_t members) {
    for (Life life = 1; life <= members; ++life) leader.come(life);
    leader.begin(7);
  }

  std::uint64_t next = 0, batches = 50;
  std::vector<RoundTicket> back;
  std::vector<std::vector<RoundTicket>> updates;
  std::map<Life, ReducedRound> said;
  std::vector<std::pair<Life, std::uint64_t>> wanted;
  std::vector<std::uint64_t> home;
  RoundLeader leader{*this};
};

// A member in a round, which it can vote for but for what is left out.
RoundMember in_round(const ReducedRound& round) {
  RoundMember member;
  CHECK_FALSE(member.hear(round));
  member.took(round.epoch);
  if (round.ticket) member.computed(*round.ticket);
  member.gave();
  return member;
}

ReducedRound a_round(std::uint64_t epoch, std::uint64_t version) {
  return {.epoch = epoch,
          .version = version,
          .members = {1, 2},
          .giving = 2,
          .ticket = RoundTicket{epoch, 5}};
}

}  // namespace

TEST_CASE("whoever dies when, no batch is in twice, and all have the bits of a server") {
  std::uint64_t reduced = 0, homes = 0, reduces = 0, lost = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const std::size_t batches = 1 + random() % 40, workers = 1 + random() % 4;
    Play play(seed, batches, workers, random() % 6, random() % 6);
    play.run();
    reduced += play.reduced;
    homes += play.homes;
    reduces += play.reduces;
    lost += play.lost_updates;
  }
  CHECK(reduced > 1000);
  CHECK(reduces > 400);
  CHECK(homes == reduces);
  CHECK(lost > 0);
}

TEST_CASE("a round names first who has a batch, in the order of batches, and who has the version") {
  Words words;
  words.batches = 2;
  words.begin(3);
  const ReducedRound& round = words.said[3];
  CHECK(round.epoch == 1);
  CHECK(round.version == 7);
  CHECK(round.members == std::vector<Life>{2, 1, 3});  // the words lend the last batch first
  CHECK(round.giving == 2);
  CHECK(round.holders.empty());  // the server has it
  CHECK_FALSE(round.ticket);
  CHECK(words.said[1].ticket == RoundTicket{1, 99});
  for (const Life life : {1, 2, 3}) words.leader.vote(life, 1, 5);
  CHECK(words.updates == std::vector<std::vector<RoundTicket>>{{{2, 98}, {1, 99}}});
  CHECK(words.leader.version() == 8);
}

TEST_CASE("the log has an update when all have voted for the sum of this epoch") {
  Words words;
  words.begin(2);
  words.leader.vote(1, 1, 5);
  words.leader.vote(1, 1, 5);
  words.leader.vote(9, 1, 5);  // is none of them
  CHECK(words.updates.empty());
  words.leader.gone(2);  // its vote is not there: the same version, and a new epoch
  CHECK(words.back == std::vector<RoundTicket>{{2, 98}});
  CHECK(words.said[1].epoch == 2);
  CHECK(words.said[1].version == 7);
  CHECK(words.said[1].ticket == RoundTicket{1, 99});
  words.leader.vote(1, 1, 5);  // of the one before
  CHECK(words.updates.empty());
  words.leader.vote(1, 2, 5);
  CHECK(words.updates.size() == 1);
  CHECK(words.said[1].version == 8);
  CHECK(words.said[1].holders == std::vector<Life>{1});
}

TEST_CASE("sums that differ are found before anything is applied, and who differs can go") {
  Words words;
  words.begin(3);
  words.leader.vote(1, 1, 5);
  words.leader.vote(2, 1, 6);
  CHECK_THROWS_WITH_AS(
      words.leader.vote(3, 1, 5),
      "the sum of epoch 1 is another one at member 2 than member 1; nothing of it is applied",
      Error);
  CHECK(words.updates.empty());
  words.leader.gone(2);
  words.leader.vote(1, 2, 4);
  words.leader.vote(3, 2, 4);
  CHECK(words.updates.size() == 1);
}

TEST_CASE("who has come is in the next round, and has the version only once it has voted") {
  Words words;
  words.begin(1);
  words.leader.come(2);
  CHECK_FALSE(words.said.contains(2));
  words.leader.vote(1, 1, 5);
  CHECK(words.said[2].epoch == 2);
  CHECK(words.said[2].holders == std::vector<Life>{1});
  words.leader.gone(1);  // who had the only replica that counts
  CHECK(words.home == std::vector<std::uint64_t>{1});
  CHECK(words.leader.version() == 7);
  CHECK(words.back.size() == 2);
}

TEST_CASE(
    "to the server when no ticket is out, by one that has it, or another where that is gone") {
  Words words;
  words.begin(2);
  words.leader.want_server(true);
  CHECK(words.wanted.empty());
  words.leader.vote(1, 1, 5);
  words.leader.vote(2, 1, 5);
  CHECK(words.wanted == std::vector<std::pair<Life, std::uint64_t>>{{1, 8}});
  words.leader.state(2, 8);  // was not asked
  CHECK(words.leader.running());
  words.leader.gone(1);
  CHECK(words.wanted.back() == std::pair<Life, std::uint64_t>{2, 8});
  CHECK_THROWS_WITH_AS(words.leader.state(2, 7), doctest::Contains("version 7"), Error);
  words.leader.state(2, 8);
  CHECK_FALSE(words.leader.running());
  CHECK(words.home == std::vector<std::uint64_t>{0});
  CHECK(words.next == 2);
  words.leader.want_server(false);
  words.leader.begin(8);
  CHECK(words.said[2].epoch == 2);
}

TEST_CASE("without a batch there is no round, and nobody is asked for what the server has") {
  Words words;
  words.batches = 0;
  words.begin(2);
  CHECK(words.said.empty());
  CHECK(words.wanted.empty());
  CHECK(words.home == std::vector<std::uint64_t>{0});
}

TEST_CASE("a member votes when it has the sum, and its rows are there, each of this round") {
  RoundMember member = in_round(a_round(1, 7));
  member.summed(2, 5);
  member.rows_are_there({1, 5});
  CHECK_FALSE(member.vote());
  member.summed(1, 5);
  const auto vote = member.vote();
  REQUIRE(vote);
  CHECK(vote->epoch == 1);
  CHECK(vote->checksum == 5);
  CHECK_FALSE(member.vote());
  RoundMember other = in_round(a_round(1, 7));
  other.summed(1, 5);
  CHECK_FALSE(other.vote());
  other.rows_are_there({2, 5});  // the same batch, of somebody before
  CHECK_FALSE(other.vote());
  other.rows_are_there({1, 5});
  CHECK(other.vote());
}

TEST_CASE(
    "its sum counts when the next round or the leader's wish says its version, and no sooner") {
  RoundMember member = in_round(a_round(1, 7));
  member.summed(1, 5);
  member.rows_are_there({1, 5});
  CHECK(member.vote());
  CHECK(member.version() == 7);
  CHECK(member.holds(1, 7));
  RoundMember asked = member, again = member, behind = member;
  CHECK(member.hear(a_round(2, 8)));
  CHECK(member.holds(2, 8));
  CHECK(member.to_compute());
  CHECK_FALSE(member.to_take());
  CHECK(asked.send_home(8));
  CHECK(asked.version() == 8);
  asked.leave();
  CHECK_FALSE(asked.hear(a_round(3, 8)));
  CHECK(asked.to_take());
  ReducedRound same = a_round(2, 7);
  same.ticket = RoundTicket{1, 5};
  CHECK_FALSE(
      again.hear(same));  // somebody is gone: it keeps what it has found, and gives it again
  CHECK_FALSE(again.to_compute());
  CHECK(again.to_give());
  CHECK_FALSE(again.vote());
  CHECK_FALSE(behind.hear(a_round(5, 9)));
  CHECK(behind.to_take());
  CHECK_THROWS_WITH_AS(behind.hear(a_round(5, 9)), doctest::Contains("epoch 5"), Error);
}

TEST_CASE("a sum that nobody has is begun again, and who leaves gives what it has") {
  Words words;
  words.begin(2);
  const std::uint64_t first = words.leader.epoch();
  words.leader.again(1, first);
  CHECK(words.leader.epoch() == first + 1);
  words.leader.again(2, first);  // another member's word of the same
  words.leader.again(3, first + 1);
  CHECK(words.leader.epoch() == first + 1);
  CHECK(words.back.empty());
  words.leader.vote(1, first + 1, 5);
  words.leader.vote(2, first + 1, 5);
  CHECK(words.leader.version() == 8);
  CHECK_FALSE(words.leader.left(3, 8));
  CHECK_FALSE(words.leader.left(1, 7));
  CHECK_FALSE(words.leader.left(1, 9));
  CHECK(words.leader.left(1, 8));
  CHECK_FALSE(words.leader.left(2, 8));
  words.leader.gone(1);
  words.leader.gone(2);
  CHECK(words.home == std::vector<std::uint64_t>{0});
}

TEST_CASE("who takes a replica for another round than this one has none") {
  RoundMember member;
  CHECK_FALSE(member.hear(a_round(2, 7)));
  CHECK(member.to_take());
  CHECK_FALSE(member.to_give());
  member.took(1);
  CHECK(member.to_take());
  CHECK_FALSE(member.holds(2, 7));
  member.took(2);
  CHECK(member.holds(2, 7));
  CHECK_FALSE(member.holds(1, 7));
}
