// The ring's sum: the same bits for all members, those of the order that is promised.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "leashed/net/ring.h"
#include "ring_sum.h"

using namespace leashed;

namespace {

constexpr std::uint64_t kLimits[] = {kRingFragment, kRingFragment};
constexpr double kLong = 120;  // seconds: under an emulator

// Connections of `members` in a ring; of two, where asked, one pair for both ways.
struct Wires {
  explicit Wires(std::size_t members, bool one_pair = false)
      : shared(one_pair), to_next(members), to_previous(members) {
    for (std::size_t i = 0; i < (shared ? 1 : members); ++i) {
      int sockets[2];
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
      to_next[i] = std::make_unique<Connection>(sockets[0], kLimits, i % 2 == 0);
      to_previous[(i + 1) % members] =
          std::make_unique<Connection>(sockets[1], kLimits, i % 2 == 0);
    }
  }
  RingPlace place(std::size_t rank) {
    const std::size_t members = to_next.size();
    if (shared) {
      Connection& only = rank == 0 ? *to_next[0] : *to_previous[1];
      return {only, only, rank, members};
    }
    return {*to_previous[rank], *to_next[rank], rank, members};
  }
  const bool shared;
  std::vector<std::unique_ptr<Connection>> to_next, to_previous;
};

}  // namespace

TEST_CASE(
    "all members have the sum, in the order of the ring, whatever their number and its length") {
  for (const std::size_t members : {2u, 3u, 4u, 7u, 64u}) {
    // Parts of no, one and several fragments, and of different numbers of them.
    const std::size_t whole = members * kRingFragment / sizeof(float);
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{63}, std::size_t{1000}, whole,
          whole + 1, 2 * whole + 3}) {
      if (members == 64 && length > 1000) continue;
      CAPTURE(members);
      CAPTURE(length);
      Vectors vectors = draw_vectors(members, length);
      const std::vector<float> expected = sum_in_order(vectors);
      Wires wires(members, members == 2 && length % 2 == 0);
      std::vector<std::string> failed(members);
      {
        std::vector<std::jthread> threads;
        for (std::size_t rank = 0; rank < members; ++rank) {
          threads.emplace_back([&, rank] {
            try {
              for (std::uint32_t round = 0; round < 2; ++round) {
                std::vector<float> data = vectors[rank];
                all_reduce(wires.place(rank), 1, round, data, Deadline::in(kLong));
                if (round == 1) vectors[rank] = data;
              }
            } catch (const std::exception& error) {
              failed[rank] = error.what();
            }
          });
        }
      }
      for (std::size_t rank = 0; rank < members; ++rank) {
        CHECK(failed[rank] == "");
        CHECK(vectors[rank] == expected);
      }
    }
  }
}

TEST_CASE(
    "a member that is missing, ends, or is in another round is told, and nobody waits for ever") {
  std::vector<float> data(1000, 1.0f);
  Wires late(3);
  CHECK_THROWS_AS(all_reduce(late.place(0), 1, 0, data, Deadline::in(0.1)), ConnectionError);
  Wires gone(3);
  gone.to_next[2].reset();
  CHECK_THROWS_AS(all_reduce(gone.place(0), 1, 0, data, Deadline::in(kLong)), ConnectionError);
  Wires busy(2);
  busy.to_next[0]->begin({.kind = 1}, {});
  CHECK_THROWS_AS(all_reduce(busy.place(0), 1, 0, data, Deadline::in(kLong)), Error);
  Wires apart(2, true);
  std::jthread other([&] {
    std::vector<float> its(1000);
    CHECK_THROWS_AS(all_reduce(apart.place(1), 1, 8, its, Deadline::in(kLong)), Error);
  });
  CHECK_THROWS_AS(all_reduce(apart.place(0), 1, 7, data, Deadline::in(kLong)), Error);
}

TEST_CASE("members whose codecs differ are told, and so is one without room for what is missing") {
  std::vector<float> data(1000, 1.0f), error(1000, 0.0f);
  Wires wires(2, true);
  CHECK_THROWS_AS(all_reduce(wires.place(0), 1, 0, data, Deadline::in(kLong), {Codec::int8, {}}),
                  Error);
  std::jthread other([&] {
    std::vector<float> its(1000);
    CHECK_THROWS_AS(all_reduce(wires.place(1), 1, 0, its, Deadline::in(kLong)), Error);
  });
  CHECK_THROWS_AS(all_reduce(wires.place(0), 1, 0, data, Deadline::in(kLong), {Codec::int8, error}),
                  Error);
}
