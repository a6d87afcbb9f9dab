// A machine of one of several servers, whose data another leases.
#include <doctest/doctest.h>

#include <vector>

#include "leashed/policy/server_policy.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

class Follower {
 public:
  explicit Follower(double m, double iota)
      : machine_(make_server_policy(
            {"gba", {{"workers", 3}, {"batch", 1}, {"m", m}, {"iota", iota}, {"follows", 1}}})) {}

  std::uint64_t pull(Node node) { return tell({Event::Kind::pull, node})[0].lease.ticket; }
  std::span<const Action> push(Node node, std::uint64_t ticket, std::uint64_t number,
                               std::uint64_t token) {
    Event event{Event::Kind::push, node, ticket};
    event.lease = {.ticket = 77, .number = number, .first = number, .count = 1, .token = token};
    return tell(event);
  }
  std::span<const Action> tell(const Event& event) {
    out_.clear();
    machine_.on(event, {0}, out_);
    return out_.actions();
  }
  std::span<const Slot> slots(const Action& action) const { return out_.slots(action); }

 private:
  ServerPolicy machine_;
  Out out_;
};

}  // namespace

TEST_CASE("a push brings its batch, by whose number it is summed and by whose token it is stale") {
  Follower server(2, 0);
  const std::uint64_t first = server.pull(0), second = server.pull(1);
  CHECK(server.push(0, first, 9, 0).size() == 1);
  const auto applied = server.push(1, second, 4, 0);
  REQUIRE(applied.size() == 2);
  CHECK(applied[1].kind == Action::Kind::apply);
  CHECK(server.slots(applied[1])[0].index == 1);  // number 4 came second
  CHECK(server.slots(applied[1])[1].index == 0);
  server.push(0, server.pull(0), 5, 0);
  const auto stale = server.push(1, server.pull(1), 6, 1);
  REQUIRE(stale.size() == 3);
  CHECK(stale[2].kind == Action::Kind::drop);
  CHECK(stale[2].why == Why::stale);
}

TEST_CASE("a batch counts once, whoever brings it") {
  Follower server(1, 4);
  CHECK(server.push(0, server.pull(0), 0, 0).size() == 2);
  const auto again = server.push(1, server.pull(1), 0, 0);
  REQUIRE(again.size() == 1);
  CHECK(again[0].kind == Action::Kind::drop);
  CHECK(again[0].why == Why::late);
  CHECK(server.push(1, server.pull(1), 1, 0).size() == 2);
}

TEST_CASE("a batch's number is no measure of memory, and each counts once in any order") {
  Follower server(1, 4);
  const std::uint64_t last = ~std::uint64_t{0};
  const std::vector<std::uint64_t> numbers = {
      std::uint64_t{1} << 62, last, 5, 3, 4, 0, last - 1, 1, 7, last - 3};
  for (const std::uint64_t number : numbers) {
    CAPTURE(number);
    CHECK(server.push(0, server.pull(0), number, number).size() == 2);
  }
  for (const std::uint64_t number : numbers) {
    CAPTURE(number);
    const auto again = server.push(0, server.pull(0), number, number);
    REQUIRE(again.size() == 1);
    CHECK(again[0].why == Why::late);
  }
  for (const std::uint64_t number : {std::uint64_t{2}, std::uint64_t{6}, last - 2}) {
    CAPTURE(number);
    CHECK(server.push(0, server.pull(0), number, number).size() == 2);
    CHECK(server.push(0, server.pull(0), number, number).size() == 1);
  }
}

TEST_CASE("what somebody has who goes is given to nobody, and is not waited for at the end") {
  Follower server(3, 4);
  server.pull(0);
  const std::uint64_t kept = server.pull(1);
  server.push(1, kept, 0, 0);
  for (Node node = 0; node < 3; ++node) CHECK(server.tell({Event::Kind::leave, node}).empty());
  const auto end = server.tell({Event::Kind::data_end});
  REQUIRE(end.size() == 1);
  CHECK(end[0].kind == Action::Kind::apply);  // of what was held
  CHECK(end[0].divisor == 1);
}

TEST_CASE(
    "one that has led has had what it leased and is not unfinished, and keeps what it holds") {
  ServerPolicy machine = make_server_policy(
      {"hop_bs", {{"workers", 3}, {"batch", 1}, {"examples", 9}, {"b1", 0}, {"m", 2}}});
  Out out;
  const auto tell = [&](const Event& event) {
    out.clear();
    machine.on(event, {0}, out);
    return out.actions();
  };
  const auto push = [&](Node node, std::uint64_t ticket, std::uint64_t number) {
    Event event{Event::Kind::push, node, ticket};
    event.lease = {.ticket = ticket, .number = number, .first = number, .count = 1, .token = 0};
    return tell(event);
  };
  for (const Node node : {0, 1, 2}) tell({Event::Kind::pull, node});
  push(0, 1, 0);                  // is held
  tell({Event::Kind::leave, 2});  // 2 comes back
  tell({Event::Kind::pull, 0});   // waits for 1
  CHECK(machine.unfinished().size() == 2);
  machine.follow();
  REQUIRE(machine.had().size() == 1);
  CHECK(machine.had()[0].first == 0);
  CHECK(machine.had()[0].last == 0);
  CHECK(machine.unfinished().empty());
  for (const Node node : {0, 1, 2}) tell({Event::Kind::leave, node});
  const auto pulled = [&](Node node) { return tell({Event::Kind::pull, node})[0].lease.ticket; };
  const std::uint64_t first = pulled(1);
  CHECK(first > 4);  // that it has given
  const auto late = push(1, first, 0);
  REQUIRE(late.size() == 1);
  CHECK(late[0].why == Why::late);
  const auto applied = push(1, pulled(1), 2);
  REQUIRE(applied.size() == 2);
  CHECK(applied[1].kind == Action::Kind::apply);
  CHECK(out.slots(applied[1]).size() == 2);  // whoever is ahead of whom
  Archived had;
  Archive archive(had);
  machine.visit(archive);
  CHECK(machine.had().back().last == 2);
}
