// Rounds against plain arithmetic in double precision, over a transport that loses, delays and
// doubles messages and whose members die and come, as a seed says: all in one thread.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "cluster/replica.h"
#include "leashed/cluster/round.h"
#include "sanitized.h"

using namespace leashed;

namespace {

const int kSeeds = sanitized() ? 300 : 4000;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Vector = std::vector<float>;
using Exact = std::vector<double>;

struct Draw {
  explicit Draw(int seed) : random(static_cast<std::uint64_t>(seed)) {}
  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  }
  bool happens(double probability) { return std::bernoulli_distribution(probability)(random); }
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  }
  Vector values(std::size_t n) {
    Vector values(n);
    for (float& value : values) value = static_cast<float>(between(-4, 4));
    return values;
  }
  std::mt19937_64 random;
};

void check_near(const Vector& found, const Exact& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    REQUIRE(double{found[i]} == doctest::Approx(expected[i]).epsilon(1e-3).scale(10));
  }
}

[[noreturn]] void fail(Draw& draw) {
  if (draw.happens(0.3)) throw Error("a frame of another round has come");
  throw ConnectionError(ConnectionError::Reason::lost, "gone");
}

// Sync servers' fragments, of a few values each here.
struct Holders {
  struct Held {
    std::size_t begin, end;
    Vector w;
    Exact exact;  // the same, as it should be
    bool present = false;
  };
  std::vector<Held> fragments;
};

struct Faults {
  double away, reply_lost, twice;
};

class FakeServers final : public Servers {
 public:
  FakeServers(Holders& holders, Draw& draw, const Faults& faults)
      : holders_(holders), draw_(draw), faults_(faults), met_(holders.fragments.size()) {}

  bool begin(std::uint64_t turn) override {
    turn_ = turn;
    return true;
  }
  bool exchange(const float* theta, float given, bool old_reply, Covered& done, Covered& first,
                const Deadline&) override {
    turns.push_back(turn_);
    came.clear();
    other_.assign(holders_.fragments.back().end, kNaN);  // of what was not answered
    for (std::size_t f = 0; f < holders_.fragments.size(); ++f) {
      Holders::Held& held = holders_.fragments[f];
      const float alpha = met_[f] ? given : 0;
      if (draw_.happens(faults_.away)) continue;
      const int times = draw_.happens(faults_.twice) ? 2 : 1;
      Vector reply;
      for (int time = 0; time < times; ++time) {
        const Vector sent(theta + held.begin, theta + held.end);
        const Vector before = held.present ? held.w : sent;
        if (!held.present) held.w = sent, held.exact.assign(sent.begin(), sent.end());
        exact_reply = held.exact;
        for (std::size_t i = 0; i < sent.size(); ++i) {
          held.w[i] = (1 - alpha) * before[i] + alpha * sent[i];
          held.exact[i] = (1 - double{alpha}) * held.exact[i] + double{alpha} * sent[i];
        }
        held.present = true;
        if (!old_reply) exact_reply = held.exact;
        reply = old_reply ? before : held.w;
      }
      if (draw_.happens(faults_.reply_lost)) continue;
      std::copy(reply.begin(), reply.end(),
                other_.begin() + static_cast<std::ptrdiff_t>(held.begin));
      (met_[f] ? done : first).add({held.begin, held.end});
      came.push_back({f, !met_[f], exact_reply});
    }
    return came.size() == holders_.fragments.size();
  }
  const float* other() const override { return other_.data(); }
  void end() override {
    for (const Reply& reply : came) met_[reply.fragment] = true;
  }

  struct Reply {
    std::size_t fragment;
    bool first;
    Exact exact;
  };
  std::vector<Reply> came;  // in the last exchange
  std::vector<std::uint64_t> turns;

 private:
  Holders& holders_;
  Draw& draw_;
  const Faults faults_;
  Exact exact_reply;
  std::uint64_t turn_ = 0;
  std::vector<bool> met_;
  Vector other_;
};

Holders holders_of(std::size_t dimension, Draw& draw) {
  Holders holders;
  for (std::size_t begin = 0; begin < dimension;) {
    const std::size_t end = std::min(dimension, begin + 1 + draw.below(7));
    holders.fragments.push_back({begin, end, Vector(end - begin), Exact(end - begin)});
    begin = end;
  }
  return holders;
}

// What all members of a ring share, and what is to become of their next round.
struct Ring {
  std::vector<std::size_t> members;  // by rank
  std::vector<bool> fresh, copied, broken;
  // Of the round under way, by rank.
  std::vector<Vector> contributions;
  std::vector<bool> take_fails, sum_fails;
  std::vector<std::optional<Vector>> entered;  // what a member had at take()
  Vector root_values, total;
  Range part{};
  std::size_t root() const {
    const auto first = std::find(fresh.begin(), fresh.end(), false);
    return first == fresh.end() ? 0 : static_cast<std::size_t>(first - fresh.begin());
  }
};

class FakePeers final : public Peers {
 public:
  FakePeers(std::optional<Ring>& ring, std::size_t id, Draw& draw)
      : ring_(ring), id_(id), draw_(draw) {}

  std::optional<std::size_t> rank() const {
    if (!ring_) return std::nullopt;
    const auto found = std::find(ring_->members.begin(), ring_->members.end(), id_);
    if (found == ring_->members.end()) return std::nullopt;
    return static_cast<std::size_t>(found - ring_->members.begin());
  }
  Begin begin() override {
    const auto rank = this->rank();
    if (!rank || ring_->broken[*rank]) return Begin::none;
    return ring_->members.size() > 1 && !ring_->copied[*rank] ? Begin::copies : Begin::ready;
  }
  bool take(std::span<float> values, const Deadline&) override {
    const std::size_t rank = *this->rank();
    ring_->entered[rank] = Vector(values.begin(), values.end());
    if (rank == ring_->root()) ring_->root_values = *ring_->entered[rank];
    if (ring_->take_fails[rank]) {
      std::fill(values.begin() + static_cast<std::ptrdiff_t>(draw_.below(values.size())),
                values.end(), kNaN);
      lose(rank);
    }
    std::copy(ring_->root_values.begin(), ring_->root_values.end(), values.begin());
    ring_->copied[rank] = true;
    return ring_->fresh[rank] && rank != ring_->root();
  }
  Sum sum(std::span<float> other, Covered& done, bool moved, const Deadline&) override {
    const std::size_t rank = *this->rank();
    const Vector& expected = ring_->contributions[rank];
    CHECK(std::memcmp(other.data(), expected.data(), other.size_bytes()) == 0);  // NaN as well
    if (meanwhile) meanwhile();
    if (ring_->sum_fails[rank]) {
      std::fill(other.begin(), other.end(), kNaN);
      lose(rank);
    }
    const auto [begin, end] = ring_->part;
    std::copy(ring_->total.begin() + static_cast<std::ptrdiff_t>(begin),
              ring_->total.begin() + static_cast<std::ptrdiff_t>(end),
              other.begin() + static_cast<std::ptrdiff_t>(begin));
    done.add(ring_->part);
    return {static_cast<std::uint32_t>(ring_->members.size()), moved};
  }

  std::function<void()> meanwhile;  // while a sum is under way

 private:
  [[noreturn]] void lose(std::size_t rank) {
    ring_->broken[rank] = true;
    fail(draw_);
  }
  std::optional<Ring>& ring_;
  const std::size_t id_;
  Draw& draw_;
};

// The algorithms as they are written (shadowsync, Algorithms 3 and 4).
struct Algorithm {
  bool bmuf;
  double alpha, eta, momentum;
  bool nesterov;
  bool difference = false;  // where nobody trains meanwhile, the same

  Choice choice() const {
    const double by_difference = difference ? 1 : 0;
    if (!bmuf) return {"ma", {{"alpha", alpha}, {"difference", by_difference}}};
    return {"bmuf",
            {{"alpha", alpha},
             {"eta", eta},
             {"momentum", momentum},
             {"nesterov", nesterov ? 1.0 : 0.0},
             {"difference", by_difference}}};
  }
};

struct Member {
  Member(const Vector& initial, std::optional<Ring>& ring, std::size_t id, Draw& draw,
         const Algorithm& algorithm)
      : replica(initial),
        peers(ring, id, draw),
        round(make_synchroniser(algorithm.choice()), nullptr, &peers, custom, initial.size(),
              counters),
        theta(initial.begin(), initial.end()) {}

  void begin_states() {
    if (begun) return;
    begun = true;
    global = theta;
    velocity.assign(theta.size(), 0);
  }
  void synchronise(const Algorithm& a, const Exact& mean, Range part) {
    for (std::size_t i = part.begin; i < part.end; ++i) {
      double target = mean[i];
      if (a.bmuf) {
        const double descent = a.eta * (mean[i] - global[i]);
        velocity[i] = a.momentum * velocity[i] + descent;
        global[i] += a.nesterov ? descent + a.momentum * velocity[i] : velocity[i];
        target = global[i];
      }
      theta[i] = (1 - a.alpha) * theta[i] + a.alpha * target;
    }
  }

  Replica replica;
  const CustomMix custom;
  RoundCounters counters;
  FakePeers peers;
  Round round;
  // As they should be.
  Exact theta, global, velocity;
  bool begun = false;
};

Vector plus(Vector a, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Some rounds over a ring whose members come, go and lose rounds.
void drive_ring(int seed) {
  Draw draw(seed);
  const std::size_t dimension = 1 + draw.below(30);
  const Algorithm algorithm{draw.happens(0.6),    draw.happens(0.2) ? 1 : draw.between(0, 1),
                            draw.between(0.1, 1), draw.happens(0.3) ? 0 : draw.between(0, 0.9),
                            draw.happens(0.5),    draw.happens(0.5)};
  const double breaks = draw.happens(0.3) ? 0 : 0.3;
  std::optional<Ring> ring;
  std::vector<std::unique_ptr<Member>> members;
  std::vector<bool> alive, new_here;
  const auto join = [&] {
    members.push_back(
        std::make_unique<Member>(draw.values(dimension), ring, members.size(), draw, algorithm));
    alive.push_back(true);
    new_here.push_back(true);
  };
  for (std::size_t n = 1 + draw.below(4); n > 0; --n) join();

  for (int step = 0; step < 14; ++step) {
    CAPTURE(step);
    for (std::size_t id = 0; id < members.size(); ++id) {  // they train, or wait
      Member& m = *members[id];
      if (!alive[id] || draw.happens(0.3)) continue;
      Vector theta = m.replica.theta();
      const Vector change = draw.values(dimension);
      for (std::size_t i = 0; i < dimension; ++i) {
        const float before = theta[i];
        theta[i] += 0.1f * change[i];
        m.theta[i] += double{theta[i]} - double{before};
      }
      m.replica.set(theta);
    }
    if (draw.happens(0.1)) join();
    if (draw.happens(0.1)) alive[draw.below(alive.size())] = false;
    const bool broken = ring && std::count(ring->broken.begin(), ring->broken.end(), true) > 0;
    bool someone_died = false;
    if (ring) {
      for (const std::size_t id : ring->members) someone_died |= !alive[id];
    }
    // Where one is gone, no round can be had any more; those left wait for the next ring.
    if (!ring || broken || someone_died || draw.happens(0.15)) {
      if (ring && draw.happens(0.3)) {
        for (std::size_t rank = 0; rank < ring->members.size(); ++rank) ring->broken[rank] = true;
        for (std::size_t id = 0; id < members.size(); ++id) {
          const Vector before = members[id]->replica.theta();
          CHECK_FALSE(members[id]->round.run(members[id]->replica.discipline(), {}));
          CHECK(members[id]->replica.theta() == before);
        }
      }
      ring.emplace();
      for (std::size_t id = 0; id < members.size(); ++id) {
        if (!alive[id]) continue;
        ring->members.push_back(id);
        ring->fresh.push_back(new_here[id]);
      }
      ring->copied.assign(ring->members.size(), false);
      ring->broken = ring->copied;
      if (ring->members.empty()) return;
    }

    const std::size_t n = ring->members.size(), root = ring->root();
    const bool copies = n > 1 && !ring->copied[root];
    ring->take_fails.assign(n, false);
    ring->sum_fails.assign(n, false);
    ring->entered.assign(n, std::nullopt);
    if (n > 1 && draw.happens(breaks)) {  // for some or all
      for (std::size_t rank = 0; rank < n; ++rank) {
        const bool in_take = copies && draw.happens(0.4);
        (in_take ? ring->take_fails : ring->sum_fails)[rank] = draw.happens(0.6);
      }
    }
    // Who has not got what was to be taken over keeps the others from having a sum.
    if (std::count(ring->take_fails.begin(), ring->take_fails.end(), true) > 0) {
      ring->sum_fails.assign(n, true);
    }
    ring->part = {draw.happens(0.5) ? 0 : draw.below(dimension), dimension};
    ring->contributions.clear();
    const Vector root_theta = members[ring->members[root]]->replica.theta();
    Exact mean(dimension);
    for (std::size_t rank = 0; rank < n; ++rank) {
      Member& m = *members[ring->members[rank]];
      const bool takes = copies && ring->fresh[rank] && rank != root;
      ring->contributions.push_back(takes ? root_theta : m.replica.theta());
      for (std::size_t i = 0; i < dimension; ++i) {
        mean[i] += double{ring->contributions[rank][i]} / static_cast<double>(n);
      }
      ring->total =
          rank == 0 ? ring->contributions[0] : plus(ring->total, ring->contributions[rank]);
    }
    Member& first = *members[ring->members[root]];
    first.begin_states();
    const Exact global = first.global, velocity = first.velocity;
    std::vector<std::size_t> order(n);  // the root first: the others take what it has
    for (std::size_t k = 0; k < n; ++k) order[k] = (root + k) % n;
    std::optional<Vector> had_all;  // the sum
    for (const std::size_t rank : order) {
      Member& m = *members[ring->members[rank]];
      const Vector before = m.replica.theta();
      const std::uint64_t rounds = m.counters.rounds, failed = m.counters.failed;
      const bool done = m.round.run(m.replica.discipline(), {});
      CHECK(done == !(ring->take_fails[rank] || ring->sum_fails[rank]));
      CHECK(m.counters.rounds == rounds + (done ? 1 : 0));
      CHECK(m.counters.failed == failed + (done ? 0 : 1));
      const bool taken = copies && !ring->take_fails[rank];
      const bool new_theta = taken && ring->fresh[rank] && rank != root;
      // As it should be.
      m.begin_states();
      if (taken) m.global = global, m.velocity = velocity;
      if (new_theta) m.theta.assign(root_theta.begin(), root_theta.end());
      if (done) m.synchronise(algorithm, mean, ring->part);
      // Of a round that failed nothing; what was taken over was taken over whole.
      const Vector after = m.replica.theta();
      if (!done) CHECK(after == (new_theta ? root_theta : before));
      for (std::size_t i = 0; i < ring->part.begin; ++i) {
        CHECK(after[i] == (new_theta ? root_theta : before)[i]);
      }
      check_near(after, m.theta);
      if (copies) {  // what a member came with: theta, and the states that it had
        const Vector& entered = *ring->entered[rank];
        CHECK(Vector(entered.begin(), entered.begin() + static_cast<std::ptrdiff_t>(dimension)) ==
              before);
      }
      if (done && algorithm.alpha == 1) {  // then theta is what all share
        const Vector part(after.begin() + static_cast<std::ptrdiff_t>(ring->part.begin),
                          after.end());
        if (!had_all) had_all = part;
        CHECK(part == *had_all);
      }
    }
    for (std::size_t rank = 0; rank < n; ++rank) {
      if (copies && !ring->take_fails[rank]) new_here[ring->members[rank]] = false;
    }
    if (std::count(ring->sum_fails.begin(), ring->sum_fails.end(), true) > 0) {
      ring->broken.assign(n, true);  // its connections are closed, for all
    }

    // Members that have had the same rounds since they took over have the same states, bit for bit:
    // they would come to the next ring with them.
    if (ring->broken[0] || n == 1 || !algorithm.bmuf) continue;
    Ring kept = std::move(*ring);
    ring.emplace(kept);
    ring->copied.assign(n, false);
    ring->take_fails.assign(n, true);
    std::optional<Vector> states;
    for (const std::size_t rank : order) {
      Member& m = *members[ring->members[rank]];
      CHECK_FALSE(m.round.run(m.replica.discipline(), {}));
      const Vector& entered = *ring->entered[rank];
      const Vector own(entered.begin() + static_cast<std::ptrdiff_t>(dimension), entered.end());
      REQUIRE(own.size() == 2 * dimension);
      if (!states) states = own;
      CHECK(own == *states);
    }
    ring.emplace(std::move(kept));
  }
}

void drive_servers(int seed) {
  Draw draw(seed);
  const std::size_t dimension = 1 + draw.below(30), trainers = 1 + draw.below(5);
  const bool drifts = draw.happens(0.5), symmetric = draw.happens(0.5);
  const double alpha = draw.happens(0.2) ? static_cast<double>(draw.below(2)) : draw.between(0, 1);
  const auto a = static_cast<float>(alpha);
  const Faults faults = draw.happens(0.3) ? Faults{0, 0, 0} : Faults{0.2, 0.2, 0.2};
  Holders holders = holders_of(dimension, draw);
  struct Trainer {
    Trainer(const Vector& initial, Holders& holders, Draw& draw, const Faults& faults,
            const Choice& choice)
        : replica(initial),
          servers(holders, draw, faults),
          round(make_synchroniser(choice), &servers, nullptr, custom, initial.size(), counters),
          theta(initial.begin(), initial.end()) {}
    Replica replica;
    const CustomMix custom;
    RoundCounters counters;
    FakeServers servers;
    Round round;
    Exact theta;
    bool begun = false;
    std::uint64_t whole = 0;  // rounds
  };
  std::vector<std::unique_ptr<Trainer>> all;
  Vector low(dimension, 1e9f), high(dimension, -1e9f);
  for (std::size_t i = 0; i < trainers; ++i) {
    const Vector initial = draw.values(dimension);
    for (std::size_t k = 0; k < dimension; ++k) {
      low[k] = std::min(low[k], initial[k]);
      high[k] = std::max(high[k], initial[k]);
    }
    all.push_back(std::make_unique<Trainer>(
        initial, holders, draw, faults,
        Choice{"easgd", {{"alpha", alpha}, {"symmetric", symmetric ? 1.0 : 0.0}}}));
  }
  for (int step = 0; step < 30; ++step) {
    CAPTURE(step);
    if (draw.happens(0.03)) {  // a server dies, and what it holds
      Holders::Held& held = holders.fragments[draw.below(holders.fragments.size())];
      held.present = false;
    }
    Trainer& t = *all[draw.below(trainers)];
    Vector before = t.replica.theta();
    if (drifts && draw.happens(0.5)) {
      const Vector change = draw.values(dimension);
      for (std::size_t i = 0; i < dimension; ++i) {
        const float old = before[i];
        before[i] += 0.1f * change[i];
        t.theta[i] += double{before[i]} - double{old};
      }
      t.replica.set(before);
    }
    const bool begins = !t.begun;
    if (begins) {
      t.round.begin(t.replica.discipline(), 7, {});
      CHECK(t.servers.turns == std::vector<std::uint64_t>{7});
      t.begun = true;
    } else {
      const std::uint64_t next = t.servers.turns.back() + 1;
      const bool done = t.round.run(t.replica.discipline(), {});
      CHECK(done == !t.servers.came.empty());
      t.whole += t.servers.came.size() == holders.fragments.size();
      CHECK(t.counters.rounds - t.counters.partial == t.whole);
      CHECK(t.servers.turns.back() == next);
    }
    std::vector<bool> came(dimension);
    for (const auto& [f, first, exact] : t.servers.came) {
      const double mixed = first ? 1 : double{a};
      const Holders::Held& held = holders.fragments[f];
      for (std::size_t i = held.begin; i < held.end; ++i) {
        came[i] = true;
        t.theta[i] = (1 - mixed) * t.theta[i] + mixed * exact[i - held.begin];
      }
    }
    const Vector after = t.replica.theta();
    check_near(after, t.theta);
    for (std::size_t i = 0; i < dimension; ++i) {
      if (!came[i]) CHECK(after[i] == before[i]);
      if (!drifts) {  // what all move to lies between
        CHECK(after[i] >= low[i] - 1e-4f);
        CHECK(after[i] <= high[i] + 1e-4f);
      }
    }
    for (const Holders::Held& held : holders.fragments) {
      if (held.present) check_near(held.w, held.exact);
    }
  }
}

}  // namespace

TEST_CASE("EASGD over servers that lose, double and forget is Algorithm 2 in what came") {
  for (int seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    drive_servers(seed);
  }
}

TEST_CASE("MA and BMUF over rings that break and change are Algorithms 3 and 4, all or nothing") {
  for (int seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    drive_ring(seed);
  }
}

namespace {

// A ring of n, unbroken.
struct Whole {
  Whole(std::size_t n, const Algorithm& algorithm, const std::vector<Vector>& initial) {
    for (std::size_t id = 0; id < n; ++id) {
      members.push_back(std::make_unique<Member>(initial[id], ring, id, draw, algorithm));
    }
    ring.emplace();
    for (std::size_t id = 0; id < n; ++id) ring->members.push_back(id);
    ring->fresh.assign(n, false);  // all keep their theta
    ring->copied.assign(n, false);
    ring->broken = ring->take_fails = ring->sum_fails = ring->copied;
    ring->entered.resize(n);
    ring->part = {0, initial[0].size()};
  }
  std::vector<bool> run(bool moved = true) {
    ring->contributions.clear();
    for (std::size_t id = 0; id < members.size(); ++id) {
      ring->contributions.push_back(members[id]->replica.theta());
      ring->total = id == 0 ? ring->contributions[0] : plus(ring->total, ring->contributions[id]);
    }
    std::vector<bool> done;
    for (auto& m : members) done.push_back(m->round.run(m->replica.discipline(), {}, moved));
    return done;
  }
  Draw draw{0};
  std::optional<Ring> ring;
  std::vector<std::unique_ptr<Member>> members;
};

}  // namespace

TEST_CASE("the mean of equal replicas is what they are, bit for bit") {
  for (const std::size_t n : {1u, 2u, 4u, 8u}) {
    for (const double alpha : {0.0, 0.25, 0.5, 1.0}) {
      const Vector theta = {1, -3, 0.5f, 1024, -1e-3f * 0};
      Whole ma(n, {false, alpha, 1, 0, false}, std::vector<Vector>(n, theta));
      Whole bmuf(n, {true, alpha, 0.5, 0.9, true}, std::vector<Vector>(n, theta));
      for (int round = 0; round < 5; ++round) {
        for (Whole* whole : {&ma, &bmuf}) {
          CHECK(whole->run() == std::vector<bool>(n, true));
          for (auto& m : whole->members) CHECK(m->replica.theta() == theta);
        }
      }
    }
  }
}

TEST_CASE("what is trained while a round is under way stays whole by differences alone") {
  for (const bool is_bmuf : {false, true}) {
    for (const bool difference : {false, true}) {
      Whole whole(2, {is_bmuf, 0.25, 1, 0, false, difference}, {{1, 1, 1}, {3, 3, 3}});
      whole.ring->part = {1, 2};
      for (auto& m : whole.members) {
        m->peers.meanwhile = [&m] { m->replica.set(plus(m->replica.theta(), {8, 8, 8})); };
      }
      CHECK(whole.run() == std::vector<bool>{true, true});
      // Of 8 a quarter goes where theta, as it has become, is mixed with a mean, 2, of what it was.
      const float lost = difference ? 0 : 2;
      CHECK(whole.members[0]->replica.theta() == Vector{9, 9.25f - lost, 9});
      CHECK(whole.members[1]->replica.theta() == Vector{11, 10.75f - lost, 11});
    }
  }
}

TEST_CASE("where nobody trains meanwhile, differences are the algorithm as printed") {
  Draw draw(5);
  for (const double alpha : {0.3, 1.0}) {
    const std::vector<Vector> initial = {draw.values(50), draw.values(50), draw.values(50)};
    Whole printed(3, {false, alpha, 1, 0, false}, initial);
    Whole by_difference(3, {false, alpha, 1, 0, false, true}, initial);
    for (Whole* whole : {&printed, &by_difference}) {
      CHECK(whole->run() == std::vector<bool>(3, true));
    }
    for (std::size_t id = 0; id < 3; ++id) {
      const Vector one = printed.members[id]->replica.theta();
      const Vector other = by_difference.members[id]->replica.theta();
      if (alpha == 1) CHECK(one == other);
      check_near(one, Exact(other.begin(), other.end()));
    }
  }
}

// Numbers that can be followed by hand: the global vector begins at the first member's theta.
TEST_CASE("block momentum and Nesterov's go on from what the blocks before have moved") {
  for (const bool nesterov : {false, true}) {
    Whole whole(2, {true, 1, 0.5, 0.5, nesterov}, {{0.0f}, {4.0f}});
    CHECK(whole.run() == std::vector<bool>{true, true});
    // mean 2, descent 1, velocity 1
    const float first = nesterov ? 1.5f : 1.0f;
    for (auto& m : whole.members) CHECK(m->replica.theta()[0] == first);
    whole.members[0]->replica.set({first + 2});
    whole.members[1]->replica.set({first + 6});
    CHECK(whole.run() == std::vector<bool>{true, true});
    // mean first + 4, descent 2, velocity 2.5
    CHECK(whole.run(false) == std::vector<bool>{true, true});  // nothing is left to go on with
    for (auto& m : whole.members) CHECK(m->counters.rounds == 2);
    const float second = first + (nesterov ? 2.0f + 1.25f : 2.5f);
    for (auto& m : whole.members) CHECK(m->replica.theta()[0] == second);
  }
}

TEST_CASE("what trainers had together is gone on with by others in their place, bit for bit") {
  const Algorithm block{true, 1, 0.5, 0.5, true};
  Whole whole(2, block, {{0.0f, 1.0f}, {4.0f, 7.0f}});
  whole.run();
  const Vector theta = whole.members[0]->replica.theta();
  const std::span<const float> held = whole.members[0]->round.states();
  const Vector states(held.begin(), held.end());
  REQUIRE(states.size() == 4);
  CHECK(states[2] != 0);  // the velocity
  Whole others(2, block, {theta, theta});
  for (auto& m : others.members) m->round.restore(states);
  const auto next = [&theta](Whole& of) {
    of.members[0]->replica.set({theta[0] + 2, theta[1] - 3});
    of.members[1]->replica.set({theta[0] + 6, theta[1]});
    of.run();
    return of.members[1]->replica.theta();
  };
  CHECK(next(whole) == next(others));
  const Vector less(3);
  CHECK_THROWS_AS(others.members[0]->round.restore(less), Error);
}

TEST_CASE("a round that is lost to one is owed by it, though nobody has trained here") {
  Whole whole(2, {false, 1, 1, 0, false}, {{0.0f}, {4.0f}});
  whole.ring->sum_fails[0] = true;
  CHECK(whole.run(false) == std::vector<bool>{false, true});
  CHECK(whole.members[0]->round.owes());
  CHECK_FALSE(whole.members[1]->round.owes());
}

TEST_CASE("with other members all parts are owed again, of which some were not") {
  struct Halves final : Peers {
    Begin begin() override { return std::exchange(next, Begin::ready); }
    bool take(std::span<float>, const Deadline&) override { return false; }
    std::size_t parts() const override { return 2; }
    Sum sum(std::span<float>, Covered&, bool moved, const Deadline&) override { return {2, moved}; }
    Begin next = Begin::copies;
  } peers;
  RoundCounters counters;
  const CustomMix none;
  Round round(make_synchroniser({"ma", {{"alpha", 1}}}), nullptr, &peers, none, 3, counters);
  Replica replica(Vector(3));
  CHECK(round.run(replica.discipline(), {}, true));
  peers.next = Peers::Begin::copies;
  CHECK(round.run(replica.discipline(), {}, false));
  CHECK(round.owes());
  CHECK(round.run(replica.discipline(), {}, false));
  CHECK_FALSE(round.owes());
  peers.next = Peers::Begin::copies;
  CHECK(round.run(replica.discipline(), {}, false));
  CHECK(counters.rounds == 3);
}

TEST_CASE("a replica that is not finite spoils nobody else's") {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
    for (const bool is_bmuf : {false, true}) {
      Whole whole(3, {is_bmuf, 0.5, 1, 0.5, false}, {{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}});
      CHECK(whole.run() == std::vector<bool>(3, true));
      const Vector zeroth = whole.members[0]->replica.theta();
      const Vector second = whole.members[2]->replica.theta();
      whole.members[1]->replica.set({1.0f, bad});
      CHECK(whole.run() == std::vector<bool>(3, false));
      CHECK(whole.members[0]->replica.theta() == zeroth);
      CHECK(whole.members[2]->replica.theta() == second);
      CHECK(whole.members[0]->counters.failed == 1);
      for (auto& m : whole.members) CHECK(m->counters.not_finite == 1);
    }
    Draw draw(1);
    Holders holders = holders_of(10, draw);
    FakeServers servers(holders, draw, {0, 0, 0});
    RoundCounters counters;
    const CustomMix custom;
    Round round(make_synchroniser({"easgd", {{"alpha", 0.5}, {"symmetric", 0}}}), &servers, nullptr,
                custom, 10, counters);
    Vector theta(10, 1.0f);
    theta[9] = bad;
    Replica replica(theta);
    CHECK_FALSE(round.run(replica.discipline(), {}));
    CHECK(counters.not_finite == 1);
    round.begin(replica.discipline(), 0, {});
    CHECK(servers.turns.empty());
  }
}

TEST_CASE("one from outside changes theta by what it changed, and by nothing where it throws") {
  Draw draw(3);
  Holders holders = holders_of(20, draw);
  FakeServers servers(holders, draw, {0, 0, 0});
  FakeServers away(holders, draw, {1, 0, 0});
  RoundCounters counters;
  Replica replica(Vector(20, 2.0f));
  bool throws = false;
  int calls = 0;
  const CustomMix custom = [&](float* theta, const float* other, std::size_t n, std::uint32_t) {
    ++calls;
    REQUIRE(n == 20);
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(theta[i] == 2);
      CHECK(other[i] == 2);
      theta[i] = 3;
    }
    if (throws) throw std::runtime_error("mine");
    // Meanwhile training goes on: that stays.
    replica.set(Vector(20, 10.0f));
  };
  const Synchroniser machine = make_synchroniser({"custom_servers", {{"alpha", 0.5}}});
  Round nobody(machine, &away, nullptr, custom, 20, counters);
  CHECK_FALSE(nobody.run(replica.discipline(), {}));
  CHECK(calls == 0);
  Round round(machine, &servers, nullptr, custom, 20, counters);
  CHECK(round.run(replica.discipline(), {}));  // a first contact: theta is what has come
  CHECK(calls == 0);
  throws = true;
  CHECK_THROWS_WITH_AS(round.run(replica.discipline(), {}), "mine", std::runtime_error);
  CHECK(replica.theta() == Vector(20, 2.0f));
  throws = false;
  CHECK(round.run(replica.discipline(), {}));
  CHECK(replica.theta() == Vector(20, 11.0f));
  CHECK(calls == 2);
  CHECK(counters.rounds == 2);
}
