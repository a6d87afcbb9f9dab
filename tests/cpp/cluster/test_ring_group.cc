// The trainers of a ring: they change over together, and a break is noticed by all.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cluster/rings.h"
#include "leashed/base/clock.h"

using namespace leashed;

namespace {

using Vector = std::vector<float>;
using Begin = Peers::Begin;

constexpr std::size_t kDimension = 3 * kFragment + 7;

struct Member {
  explicit Member(std::size_t parts = 1) : group(kDimension, parts) {}

  // One round; 0 where there was none, or it broke.
  std::uint32_t round(float value, const Deadline& deadline = Deadline::in(kLong)) {
    done.clear();
    broke = false;
    const Begin begun = group.begin();
    if (begun == Begin::none) return 0;
    try {
      if (begun == Begin::copies) {
        copied.assign(10, value);
        is_new = group.take(copied, deadline);
        ++takes;
      }
      sum.assign(kDimension, value);
      return group.sum(sum, done, true, deadline).members;
    } catch (const Error&) {
      broke = true;
      return 0;
    }
  }
  RingGroup group;
  Vector copied, sum;
  Covered done;
  bool is_new = false, broke = false;
  std::atomic<std::uint64_t> takes{0}, rounds{0};
};

void together(std::vector<std::unique_ptr<Member>>& members, const auto& f) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < members.size(); ++i)
    threads.emplace_back([&, i] { f(*members[i], i); });
}

std::vector<std::unique_ptr<Member>> made(std::size_t n) {
  std::vector<std::unique_ptr<Member>> members;
  for (std::size_t i = 0; i < n; ++i) members.push_back(std::make_unique<Member>());
  return members;
}

void form(std::vector<std::unique_ptr<Member>>& members, std::uint64_t epoch,
          const std::vector<bool>& fresh) {
  auto all = rings(epoch, fresh);
  for (std::size_t i = 0; i < all.size(); ++i) members[i]->group.form(std::move(all[i]));
}

}  // namespace

TEST_CASE("all take over from the first that is not new, once a ring, and then have the sum") {
  const std::vector<std::vector<bool>> cases = {
      {true, true, true}, {false, true, true}, {true, true, false}, {false, false, false}};
  for (const auto& fresh : cases) {
    const std::size_t n = fresh.size();
    std::size_t root = 0;
    while (root < n && fresh[root]) ++root;
    root %= n;
    auto members = made(n);
    CHECK(members[0]->group.begin() == Begin::none);
    form(members, 1, fresh);
    together(members, [&](Member& m, std::size_t i) {
      for (int round = 0; round < 3; ++round) CHECK(m.round(static_cast<float>(i + 1)) == n);
    });
    for (std::size_t i = 0; i < n; ++i) {
      const Member& m = *members[i];
      CHECK(m.takes == 1);
      CHECK(m.copied == Vector(10, static_cast<float>(root + 1)));
      CHECK(m.is_new == (fresh[i] && i != root));
      CHECK(m.sum == Vector(kDimension, 6.0f));
      CHECK(m.group.ended() == 0);
    }
    const Traffic traffic = members[0]->group.traffic().own();
    CHECK(traffic.out > 0);
    CHECK(traffic.in > 0);
  }
}

TEST_CASE("a round of a part takes that alone, and all parts together the whole") {
  for (const std::size_t parts : {1u, 2u, 3u, 4u}) {
    auto members = made(0);
    for (int i = 0; i < 2; ++i) members.push_back(std::make_unique<Member>(parts));
    form(members, 1, {false, false});
    together(members, [&](Member& m, std::size_t i) {
      std::vector<int> covered(kDimension);
      for (std::size_t round = 0; round < parts; ++round) {
        CHECK(m.round(static_cast<float>(i + 1)) == 2);
        m.done.each(0, kDimension, [&](std::size_t begin, std::size_t end) {
          for (std::size_t k = begin; k < end; ++k) ++covered[k];
        });
        for (std::size_t k = 0; k < kDimension; ++k) {
          bool in = false;
          m.done.each(k, k + 1, [&](std::size_t, std::size_t) { in = true; });
          if (m.sum[k] != (in ? 3.0f : static_cast<float>(i + 1))) FAIL_CHECK(k);
        }
      }
      CHECK(covered == std::vector<int>(kDimension, 1));
    });
  }
}

// In order: the master waits until all are in a ring before it makes the next. Else one may be
// overtaken that some have begun, and others not.
TEST_CASE("members change over to the next ring at one edge, whenever each is told of it") {
  constexpr std::size_t kMembers = 3;
  constexpr std::uint64_t kLast = 5;
  for (int run = 0; run < 20; ++run) {
    const bool in_order = run % 2 == 0;
    CAPTURE(in_order);
    auto members = made(kMembers);
    form(members, 1, {true, true, true});
    std::vector<std::vector<std::uint64_t>> epochs(kMembers);  // of each round, what had ended
    const auto all = [&](const auto& holds) {
      return std::all_of(members.begin(), members.end(), [&](auto& m) { return holds(*m); });
    };
    std::jthread master([&] {
      for (std::uint64_t epoch = 2; epoch <= kLast; ++epoch) {
        if (in_order) {
          CHECK(comes_true([&] {
            return all([&](Member& m) { return m.rounds > 0 && m.takes >= epoch - 1; });
          }));
        }
        auto next = rings(epoch, {false, false, false});
        for (std::size_t i = 0; i < kMembers; ++i) {
          const std::size_t rank = (i + epoch) % kMembers;
          members[rank]->group.form(std::move(next[rank]));
          std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
        }
      }
      // One round may be the last of the ring before.
      std::vector<std::uint64_t> rounds;
      for (auto& m : members) rounds.push_back(m->rounds);
      for (std::size_t i = 0; i < kMembers; ++i) {
        CHECK(comes_true([&] { return members[i]->rounds >= rounds[i] + 3; }));
      }
      for (auto& m : members) m->group.want_to_leave();
    });
    together(members, [&](Member& m, std::size_t i) {
      while (!m.group.has_left()) {
        const std::uint64_t before = m.group.ended();
        const std::uint32_t n = m.round(static_cast<float>(i + 1));
        if (in_order) CHECK_FALSE(m.broke);
        if (n == 0) {
          std::this_thread::yield();
          continue;
        }
        CHECK(n == kMembers);
        CHECK(m.sum[kDimension - 1] == 6);
        epochs[i].push_back(before);
        ++m.rounds;
      }
    });
    for (auto& m : members) CHECK(m->group.ended() == kLast);
    if (!in_order) continue;
    CHECK(epochs[0] == epochs[1]);
    CHECK(epochs[0] == epochs[2]);
    for (auto& m : members) CHECK(m->takes == kLast);
  }
}

TEST_CASE("who leaves has a last round with the others, who go on without him") {
  auto members = made(3);
  form(members, 1, {true, true, true});
  together(members, [](Member& m, std::size_t) { CHECK(m.round(1) == 3); });
  members[2]->group.want_to_leave();
  together(members, [](Member& m, std::size_t) { CHECK(m.round(1) == 3); });
  CHECK(members[2]->group.has_left());
  for (auto& m : members) {
    CHECK(m->group.ended() == 1);
    CHECK(m->group.begin() == Begin::none);
  }
  members.pop_back();
  form(members, 2, {false, false});
  together(members, [](Member& m, std::size_t) { CHECK(m.round(1) == 2); });
  CHECK_FALSE(members[0]->group.has_left());
}

TEST_CASE("a break is noticed by all, whoever it is that is gone, and nobody waits for long") {
  for (std::size_t gone = 0; gone < 4; ++gone) {
    CAPTURE(gone);
    auto members = made(4);
    form(members, 7, {false, false, false, false});
    together(members, [](Member& m, std::size_t) { CHECK(m.round(1) == 4); });
    const double begun = now();
    together(members, [&](Member& m, std::size_t i) {
      if (i == gone) {
        m.group.close();
      } else {
        CHECK(m.round(1) == 0);
        CHECK(m.broke);
      }
    });
    CHECK(now() - begun < kLong / 2);
    for (auto& m : members) {
      CHECK(m->group.ended() == 7);
      CHECK(m->group.begin() == Begin::none);
    }
    CHECK(members[gone]->group.has_left());
  }
}

TEST_CASE("a member that hangs holds the others up to their deadline, who then give the ring up") {
  auto members = made(3);
  form(members, 1, {false, false, false});
  together(members, [](Member& m, std::size_t) { CHECK(m.round(1) == 3); });
  together(members, [](Member& m, std::size_t i) {
    if (i > 0) CHECK(m.round(1, Deadline::in(0.1)) == 0);
  });
  CHECK(members[1]->group.ended() == 1);
  CHECK(members[0]->round(1) == 0);  // when it goes on, there is nobody
  CHECK(members[0]->broke);
}

TEST_CASE("a ring that comes to who leaves is closed, so that its others do not wait for him") {
  for (const bool before : {true, false}) {
    auto members = made(2);
    if (before) members[0]->group.want_to_leave();
    form(members, 1, {true, true});
    if (!before) members[0]->group.want_to_leave();
    CHECK(members[0]->group.has_left());
    const double begun = now();
    CHECK(members[1]->round(1) == 0);
    CHECK(members[1]->broke);
    CHECK(now() - begun < kLong / 2);
  }
}

TEST_CASE("what is not finite is taken over by nobody") {
  auto members = made(3);
  form(members, 1, {false, true, true});
  together(members, [](Member& m, std::size_t i) {
    CHECK(m.round(i == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f) == 0);
    CHECK(m.broke);
    CHECK(m.takes == 0);
  });
}

TEST_CASE("one alone is a ring as well; a rank outside of it is an error") {
  auto members = made(1);
  form(members, 1, {true});
  CHECK(members[0]->round(3) == 1);
  CHECK(members[0]->takes == 0);
  CHECK(members[0]->sum == Vector(kDimension, 3.0f));
  form(members, 2, {false});
  CHECK(members[0]->round(3) == 1);
  CHECK(members[0]->group.ended() == 1);
  CHECK(members[0]->round(3) == 1);
  members[0]->group.want_to_leave();
  CHECK_FALSE(members[0]->group.has_left());
  CHECK(members[0]->round(3) == 1);
  CHECK(members[0]->group.has_left());
  CHECK_THROWS_AS(members[0]->group.form({}), Error);  // of nobody
  RingGroup::Ring outside;
  outside.rank = 1;
  outside.fresh = {true};
  CHECK_THROWS_AS(members[0]->group.form(std::move(outside)), Error);
}

namespace {

// As somebody else's may: what closes it waits for a thread that wants something of the group.
struct Slow final : Collective {
  explicit Slow(RingGroup& group) : group(group) {}
  ~Slow() override {
    std::jthread([this] { group.form({1, 0, {true}, nullptr}); });
  }
  void sum(std::span<float>, const RingCodec&, const Deadline&) override {}
  void broadcast(std::span<float>, std::size_t, const Deadline&) override {}
  void count(WireCount&) override {}

  RingGroup& group;
};

}  // namespace

TEST_CASE("what sums is closed without the group's lock, for whatever reason") {
  RingGroup group(kDimension, 1);
  const auto form = [&group](std::uint64_t epoch) {
    group.form({epoch, 0, {false, false}, std::make_unique<Slow>(group)});
  };
  form(3);
  form(4);  // overtakes it
  form(2);  // is late
  group.want_to_leave();
  form(5);  // comes to who leaves
  CHECK(group.has_left());
}
