// Trainers that are all connected with each other: their sums' bits, and their epochs.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/direct_collective.h"
#include "leashed/cluster/messages.h"
#include "leashed/cluster/ring_group.h"

using namespace leashed;

namespace {

using Values = std::vector<float>;

std::vector<std::unique_ptr<DirectCollective>> all_with_all(std::size_t members) {
  std::vector<std::vector<std::unique_ptr<Connection>>> links(members);
  for (auto& each : links) each.resize(members);
  for (std::size_t i = 0; i < members; ++i) {
    for (std::size_t j = i + 1; j < members; ++j) {
      const auto [one, other] = pair_of_sockets();
      links[i][j] = std::make_unique<Connection>(one, kRingLimits, i % 2 == 0);
      links[j][i] = std::make_unique<Connection>(other, kRingLimits, j % 2 == 0);
    }
  }
  std::vector<std::unique_ptr<DirectCollective>> all;
  for (std::size_t rank = 0; rank < members; ++rank) {
    all.push_back(std::make_unique<DirectCollective>(rank, std::move(links[rank])));
  }
  return all;
}

void by_each(std::size_t members, const auto& act) {
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < members; ++rank) threads.emplace_back([&, rank] { act(rank); });
}

std::vector<std::unique_ptr<RingGroup>> groups(std::size_t members, std::size_t dimension) {
  std::vector<std::unique_ptr<RingGroup>> all;
  for (std::size_t i = 0; i < members; ++i)
    all.push_back(std::make_unique<RingGroup>(dimension, 1));
  return all;
}

// The members, of those of a ring's ranks.
void form_direct(const std::vector<RingGroup*>& members, std::uint64_t epoch,
                 const std::vector<bool>& fresh) {
  auto all = all_with_all(members.size());
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    members[rank]->form({epoch, rank, fresh, std::move(all[rank])});
  }
}

struct Had {
  std::uint32_t members = 0;
  bool broke = false;
  std::optional<Values> taken;  // where it had begun
  Values sum;
};

Had round_of(RingGroup& group, std::size_t dimension, float value) {
  Had had;
  try {
    const auto begun = group.begin();
    if (begun == Peers::Begin::none) return had;
    if (begun == Peers::Begin::copies) {
      Values copied(2 * dimension, value);
      if (group.take(copied, Deadline::in(kLong))) had.taken = copied;
    }
    Covered done;
    had.sum.assign(dimension, value);
    had.members = group.sum(had.sum, done, true, Deadline::in(kLong)).members;
  } catch (const ConnectionError&) {
    had.broke = true;
  }
  return had;
}

}  // namespace

TEST_CASE("all have what one makes of the vectors in the order of ranks, and the root's as it is") {
  for (const std::size_t members : {2u, 3u, 5u}) {
    const auto all = all_with_all(members);
    for (const std::size_t length : {1u, 2u, 100u, 70'001u}) {
      CAPTURE(members);
      CAPTURE(length);
      std::mt19937_64 random(length);
      std::normal_distribution<float> normal;
      std::vector<Values> given(members, Values(length)), sums, copies;
      for (Values& values : given) {
        for (float& v : values) v = std::ldexp(normal(random), static_cast<int>(random() % 24));
      }
      given.back()[0] = -0.0f;  // which a sum would lose
      Values expected = given[0];
      for (std::size_t rank = 1; rank < members; ++rank) {
        for (std::size_t i = 0; i < length; ++i) expected[i] += given[rank][i];
      }
      sums = copies = given;
      by_each(members, [&](std::size_t rank) {
        all[rank]->sum(sums[rank], {}, Deadline::in(kLong));
        all[rank]->broadcast(copies[rank], members - 1, Deadline::in(kLong));
      });
      for (std::size_t rank = 0; rank < members; ++rank) {
        CHECK(sums[rank] == expected);
        CHECK(std::memcmp(copies[rank].data(), given.back().data(), length * sizeof(float)) == 0);
      }
    }
    WireCount traffic;
    for (const auto& each : all) each->count(traffic);
    CHECK(traffic.own().out == traffic.own().in);
    const Traffic once = traffic.own();
    for (const auto& each : all) each->count(traffic);
    CHECK(traffic.own().out == once.out);
  }
}

TEST_CASE("a member knows that another has called, and that another is gone") {
  auto all = all_with_all(3);
  Values values[3];
  for (Values& each : values) each.assign(10, 1);
  CHECK(all[0]->called() == false);
  {
    const std::jthread one([&] { all[1]->sum(values[1], {}, Deadline::in(kLong)); });
    CHECK(comes_true([&] { return all[0]->called().value(); }));
    const std::jthread other([&] { all[2]->sum(values[2], {}, Deadline::in(kLong)); });
    all[0]->sum(values[0], {}, Deadline::in(kLong));
  }
  for (const Values& each : values) CHECK(each == Values(10, 3));
  CHECK(all[0]->called() == false);
  all[2].reset();
  CHECK(all[0]->called() == true);
  CHECK_THROWS_WITH_AS(all[0]->sum(values[0], {}, Deadline::in(kLong)),
                       doctest::Contains("member 2"), ConnectionError);
}

TEST_CASE("what is encoded is refused before anything is sent") {
  const auto all = all_with_all(2);
  Values values(10), error(10);
  CHECK_THROWS_WITH_AS(all[0]->sum(values, {Codec::bfloat16, error}, Deadline::in(kLong)),
                       "only the own ring has compression", Error);
  CHECK(all[1]->called() == false);
}

TEST_CASE("who is gone breaks the round for all; fewer go on, and newcomers take what they have") {
  constexpr std::size_t kDimension = 1000;
  for (std::size_t gone = 0; gone < 4; ++gone) {
    CAPTURE(gone);
    auto all = groups(4, kDimension);
    std::vector<RingGroup*> members;
    for (const auto& each : all) members.push_back(each.get());
    form_direct(members, 1, {true, true, true, true});
    std::vector<Had> had(4);
    const auto play = [&] {
      by_each(members.size(), [&](std::size_t rank) {
        had[rank] = round_of(*members[rank], kDimension, static_cast<float>(rank + 1));
      });
    };
    play();
    for (const Had& each : had) {
      CHECK(each.members == 4);
      CHECK(each.sum == Values(kDimension, 10));
    }
    by_each(4, [&](std::size_t rank) {
      if (rank == gone) {
        members[rank]->close();
      } else {
        had[rank] = round_of(*members[rank], kDimension, 1);
      }
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
      if (rank != gone) CHECK(had[rank].broke);
      CHECK(members[rank]->ended() == 1);
    }
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(gone));
    form_direct(members, 2, {false, false, false});
    play();
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK(had[rank].sum == Values(kDimension, 6));
    // At a round's edge, of which all hear though but one was told before it.
    RingGroup newcomer(kDimension, 1);
    members.push_back(&newcomer);
    form_direct(members, 3, {false, false, false, true});
    members.pop_back();
    play();  // the last of the epoch before
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK(members[rank]->ended() == 2);
    members.push_back(&newcomer);
    play();
    for (std::size_t rank = 0; rank < 4; ++rank) {
      CHECK(had[rank].sum == Values(kDimension, 10));
      CHECK(had[rank].taken.has_value() == (rank == 3));
      CHECK(members[rank]->settled() == 3);
    }
    CHECK(*had[3].taken == Values(2 * kDimension, 1));
  }
}

TEST_CASE("what is not finite is taken over by nobody, and blames no connection") {
  auto all = groups(3, 10);
  std::vector<RingGroup*> members;
  for (const auto& each : all) members.push_back(each.get());
  form_direct(members, 1, {false, true, true});
  std::atomic<int> found{0};
  by_each(3, [&](std::size_t rank) {
    Values copied(10, rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
    CHECK(members[rank]->begin() == Peers::Begin::copies);
    try {
      members[rank]->take(copied, Deadline::in(kLong));
    } catch (const NotFinite&) {
      ++found;
    }
  });
  CHECK(found == 3);
}
