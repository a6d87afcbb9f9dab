// Rounds of a ring in one thread, in seeded orders: bytes come in random pieces and late, members
// and links end at random moments. A member is called only when what it waits for is there, so one
// that waits for the wrong thing is found.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "asked.h"
#include "leashed/net/ring.h"
#include "ring_sum.h"
#include "sanitized.h"
#include "shortest.h"
#include "sockets.h"

using namespace leashed;

namespace {

using Random = std::mt19937_64;

constexpr std::uint64_t kLimits[] = {kRingFragment, kRingFragment};

// From one member to the next: two sockets with somebody between, who hands on what he likes.
class Relay {
 public:
  Relay(int from, int to) : from_(from), to_(to) {}
  ~Relay() { cut(); }
  Relay(const Relay&) = delete;

  void cut() {
    for (int* socket : {&from_, &to_}) {
      if (*socket >= 0) close(*socket);
      *socket = -1;
    }
  }
  // True where something has moved. Once a side has ended, what had come from it is still handed
  // on.
  bool pump(std::size_t most) {
    if (from_ < 0) return false;
    if (held_.empty()) {
      held_.resize(most);
      const ssize_t n = recv(from_, held_.data(), most, MSG_DONTWAIT);
      held_.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      if (n == 0 || (n < 0 && errno != EAGAIN) || gone(to_)) {
        cut();
        return true;
      }
      return n > 0;
    }
    const ssize_t n =
        ::send(to_, held_.data(), std::min(most, held_.size()), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) {
      cut();
      return true;
    }
    if (n > 0) held_.erase(held_.begin(), held_.begin() + n);
    return n > 0;
  }

 private:
  static bool gone(int socket) {
    char nothing;
    return recv(socket, &nothing, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  }

  int from_, to_;
  std::vector<std::byte> held_;
};

bool ready(Connection& connection, bool to_read, bool to_write) {
  const std::optional<short> events = connection.events(to_read, to_write);
  if (!events) return true;
  pollfd waiting{connection.socket(), *events, 0};
  return poll(&waiting, 1, 0) > 0;
}

struct Member {
  std::shared_ptr<Connection> previous, next;  // one, where there are two members and one pair
  std::vector<float> data, error;
  std::unique_ptr<RingRound> round;
  bool done = false;
  std::string failed;

  bool over() const { return done || !failed.empty(); }
  void end(const std::string& why) {
    failed = why;
    round.reset();
    previous.reset();
    next.reset();
  }
  bool has_something() {
    const RingRound::Needs needs = round->needs();
    if (previous == next) return ready(*next, needs.to_read, needs.to_write);
    return (needs.to_read && ready(*previous, true, false)) ||
           (needs.to_write && ready(*next, false, true));
  }
  void step() {
    try {
      done = round->step();
    } catch (const ConnectionError& error) {
      end(error.what());
    }
  }
};

enum class Kind { sockets, shared, mixed };

// A round to its end.
struct Play {
  // Of a sum with that codec, or a broadcast.
  Play(std::size_t count, std::size_t length, std::optional<std::size_t> root, Codec codec,
       Kind kind, Random& random)
      : members(count) {
    const bool one_pair = count == 2 && kind == Kind::shared && random() % 2 == 0;
    for (std::size_t i = 0; i < (one_pair ? 1 : count); ++i) {
      const bool shared = kind == Kind::shared || (kind == Kind::mixed && random() % 2 == 0);
      connect(members[i].next, members[(i + 1) % count].previous, shared, random);
    }
    if (one_pair) {
      members[0].previous = members[0].next;
      members[1].next = members[1].previous;
    }
    vectors = draw_vectors(count, length);
    if (codec != Codec::none) errors = draw_vectors(count, length);
    const Vectors before = errors;
    expected = root                   ? vectors[*root]
               : codec == Codec::none ? sum_in_order(vectors)
                                      : encoded_sum_in_order(vectors, codec, errors);
    for (std::size_t i = 0; i < count; ++i) {
      Member& member = members[i];
      member.data = vectors[i];
      if (codec != Codec::none) member.error = before[i];
      const RingPlace place{*member.previous, *member.next, i, count};
      // A factory's result has no other place than this.
      member.round.reset(
          root ? new RingRound(RingRound::broadcast(place, *root, 1, 7, member.data))
               : new RingRound(RingRound::sum(place, 1, 7, member.data, {codec, member.error})));
    }
  }

  void connect(std::shared_ptr<Connection>& here, std::shared_ptr<Connection>& there, bool shared,
               Random& random) {
    const auto [from, near] = pair_of_sockets();
    here = std::make_shared<Connection>(from, kLimits, random() % 2 == 0);
    if (shared) {
      there = std::make_shared<Connection>(near, kLimits, random() % 2 == 0);
      const std::shared_ptr<SharedRings> rings = SharedRings::create(draw_secret(), 4096);
      here->go_through(rings, true);
      there->go_through(rings, false);
    } else {
      const auto [far, to] = pair_of_sockets();
      there = std::make_shared<Connection>(to, kLimits, random() % 2 == 0);
      relays.push_back(std::make_unique<Relay>(near, far));
    }
  }

  bool turn(std::size_t actor, std::size_t most) {
    if (actor >= members.size()) return relays[actor - members.size()]->pump(most);
    Member& member = members[actor];
    // The first time it is called without having waited.
    const bool first = !begun[actor];
    if (member.over() || (!first && !member.has_something())) return false;
    begun[actor] = true;
    member.step();
    return true;
  }

  // `orderless`: turns before all have one after the other.
  void run(Random& random, std::size_t orderless, std::optional<std::size_t> fault_at) {
    begun.assign(members.size(), false);
    const std::size_t actors = members.size() + relays.size();
    for (std::size_t t = 0; t < orderless || (fault_at && t <= *fault_at); ++t) {
      if (fault_at && t == *fault_at) fault(random);
      turn(random() % actors, random() % 4 == 0 ? 1 + random() % 100 : 1 + random() % 100'000);
    }
    // Then all in turn, until nobody can do anything.
    for (bool something = true; something;) {
      something = false;
      for (std::size_t actor = 0; actor < actors; ++actor) {
        something = turn(actor, 1 + random() % 100'000) || something;
      }
    }
  }

  void fault(Random& random) {
    const std::size_t actor = random() % (members.size() + relays.size());
    if (actor >= members.size()) {
      relays[actor - members.size()]->cut();
    } else if (!members[actor].over()) {
      members[actor].end("killed");
    }
  }

  std::vector<Member> members;
  std::vector<std::unique_ptr<Relay>> relays;
  std::vector<bool> begun;
  Vectors vectors, errors;
  std::vector<float> expected;
};

std::size_t draw_length(std::size_t members, Random& random) {
  switch (random() % 6) {
    case 0:
      return random() % 3;
    case 1:
      return members - 1 + random() % 3;
    case 2:  // several fragments of a part
      if (members <= 4) return members * (kRingFragment / sizeof(float)) + random() % 100'000;
      [[fallthrough]];
    default:
      return random() % 5000;
  }
}

std::size_t draw_members(Kind kind, Random& random) {
  if (random() % 50 == 0) return kind == Kind::sockets ? 64 : 16;
  return 2 + random() % (random() % 4 == 0 ? 16 : 4);
}

const std::uint64_t kSchedules = sanitized() ? 50 : 600;

// LEASHED_SCHEDULES: how many of each kind.
std::uint64_t schedules() { return asked_for("LEASHED_SCHEDULES", kSchedules); }

struct Settings {
  std::size_t members, length, turns, fault_at;
};
const Lengths<Settings> kLengths = {{"turns", &Settings::turns, 0},
                                    {"fault_at", &Settings::fault_at, 0},
                                    {"members", &Settings::members, 2},
                                    {"length", &Settings::length, 0}};

// How many have the result.
std::size_t played(const Settings& settings, Kind kind, bool faults, std::uint64_t seed) {
  Random random(seed);
  const std::uint64_t what = random() % 4;
  std::optional<std::size_t> root, fault_at;
  if (what == 0) root = random() % settings.members;
  const Codec codec = what == 1 ? Codec::bfloat16 : what == 2 ? Codec::int8 : Codec::none;
  Play play(settings.members, settings.length, root, codec, kind, random);
  if (faults) fault_at = settings.fault_at;
  play.run(random, settings.turns, fault_at);
  std::size_t done = 0;
  for (std::size_t i = 0; i < settings.members; ++i) {
    const Member& member = play.members[i];
    HOLDS(member.over());
    HOLDS(faults || member.failed.empty());
    if (!member.done) continue;
    ++done;
    HOLDS(member.data == play.expected);
    HOLDS(play.errors.empty() || member.error == play.errors[i]);
  }
  return done;
}

void play_all(Kind kind, bool faults) {
  std::size_t broken = 0, part = 0;
  for (std::uint64_t seed = 0; seed < schedules(); ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Settings settings{};
    settings.members = draw_members(kind, random);
    settings.length = draw_length(settings.members, random);
    settings.turns = random() % (40 * settings.members);
    settings.fault_at = random() % (10 * settings.members);
    std::size_t done = 0;
    hold(settings, kLengths, [&](const Settings& of) { done = played(of, kind, faults, seed); });
    broken += done == 0;
    part += done > 0 && done < settings.members;
  }
  if (!faults) return;
  CHECK(broken > 0);
  CHECK(part > 0);
}

}  // namespace

TEST_CASE("in whatever pieces and order bytes come, all members end with the result") {
  SUBCASE("over sockets") { play_all(Kind::sockets, false); }
  SUBCASE("through shared memory") { play_all(Kind::shared, false); }
  SUBCASE("through both") { play_all(Kind::mixed, false); }
}

TEST_CASE(
    "wherever a member or a link ends, each has the whole result or is told, and none waits") {
  SUBCASE("over sockets") { play_all(Kind::sockets, true); }
  SUBCASE("through shared memory") { play_all(Kind::shared, true); }
  SUBCASE("through both") { play_all(Kind::mixed, true); }
}
