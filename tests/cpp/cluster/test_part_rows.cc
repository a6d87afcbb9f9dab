// Rows of tables on a policy server behind the first: what a lane may look up and push there.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "asked.h"
#include "cluster/policy_world.h"
#include "leashed/cluster/part_service.h"
#include "leashed/table/table.h"
#include "modes/row_job.h"

using namespace leashed;

namespace {

// The first of two servers, and the second, each with seven parameters and a small table.
class Two {
 public:
  static constexpr std::size_t kEach = 7, kRowDim = 3;

  explicit Two(const std::string& mode) {
    const Choice choice{mode, {{"workers", 2.0}, {"batch", 4.0}, {"examples", 80.0}}};
    const DisciplineContext context{initial_.data(), kEach, 2, 3, *rule_};
    const bool alike = deciding(mode) == Deciding::alike;
    first = std::make_unique<PolicyService>(modes::make_server_policy(choice), context,
                                            PolicyService::Run{1, 2, 3, 1, alike}, nullptr, nullptr,
                                            nullptr, holders_[0].get());
    second = std::make_unique<PartService>(choice, context, PartService::Run{1, 2, 4, 1},
                                           holders_[1].get());
    first->open(posts[0]);
    second->open(posts[1]);
    cable_[0] = come(0);
    cable_[1] = come(1);
    Bytes hello;
    put(hello, second->follow());
    say(0, cable_[0], kToldHello, hello, 1);
    tell();
  }

  Peer come(std::size_t s) {
    service(s).come(++last_);
    posts[s].boxes[last_];
    return last_;
  }
  void say(std::size_t s, Peer peer, std::uint16_t kind, const Bytes& bytes,
           std::uint64_t correlation = 0) {
    service(s).frame(peer, place(s, peer, kind, bytes, correlation), none_);
  }
  // All of it has come, and nobody has looked at it.
  FrameHeader place(std::size_t s, Peer peer, std::uint16_t kind, const Bytes& bytes,
                    std::uint64_t correlation) {
    const FrameHeader header{.kind = kind, .length = bytes.size(), .correlation = correlation};
    const std::span<std::byte> to = service(s).place(peer, header);
    REQUIRE(to.size() == bytes.size());
    if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
    return header;
  }
  void look_at(std::size_t s, Peer peer, const FrameHeader& header) {
    service(s).frame(peer, header, none_);
  }
  void close(std::size_t s, Peer peer) {
    posts[s].boxes.erase(peer);
    service(s).gone(peer);
  }
  // What the servers have to say to each other.
  void tell() {
    for (bool more = true; more;) {
      more = false;
      for (std::size_t s = 0; s < 2; ++s) {
        if (posts[s].boxes.at(cable_[s]).empty()) continue;
        const auto [header, bytes] = posts[s].take(cable_[s]);
        say(1 - s, cable_[1 - s], header.kind, bytes, header.correlation);
        more = true;
      }
    }
  }
  // A lane that the first has granted a lease, and the second too.
  struct Lane {
    Peer at_first = 0, at_second = 0;
    std::uint64_t ticket = 0;  // of the second
  };
  Peer granted_by_first(std::uint32_t node) {
    const Peer peer = come(0);
    say(0, peer, kModeHello, mode_hello(1, 9 + node, 1, 2));
    posts[0].take(peer);
    say(0, peer, kModePull, {});
    REQUIRE(posts[0].take(peer).first.kind == kGrant);
    return peer;
  }
  Lane lane(std::uint32_t node, std::uint32_t life = 0) {
    Lane made{.at_first = granted_by_first(node)};
    tell();
    made.at_second = come(1);
    Bytes hello;
    put(hello, PartHello{1, 9 + node, 1, 2, node, life});
    say(1, made.at_second, kPartHello, hello);
    posts[1].take(made.at_second);
    if (posts[1].boxes.at(made.at_second).empty()) say(1, made.at_second, kModePull, {});
    const auto [header, bytes] = posts[1].take(made.at_second);
    REQUIRE(header.kind == kGrant);
    made.ticket = header.correlation;
    return made;
  }
  std::vector<float> looked_up(const Lane& lane, const Ids& ids) {
    say(1, lane.at_second, kLookup, lookup_of(ids, true), lane.ticket);
    const auto [header, bytes] = posts[1].take(lane.at_second);
    CHECK(header.kind == kRows);
    CHECK(header.correlation == lane.ticket);
    std::vector<float> rows(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(rows.data(), bytes.data(), bytes.size());
    return rows;
  }
  static Bytes part(std::size_t rows, float value = 0.5f) {
    Bytes bytes;
    put(bytes, std::vector<float>(kEach, value));
    put(bytes, PartTail{0, 0, 4, 0});
    put(bytes, std::vector<float>(rows * kRowDim, value));
    return bytes;
  }
  Table& table() { return *holders_[1]->tables()[0]; }

  std::unique_ptr<PolicyService> first;
  std::unique_ptr<PartService> second;
  HeldPost posts[2];

 private:
  struct None final : Outbox {
    void send(const FrameHeader&, Connection::Parts) override { FAIL("by the post alone"); }
  };
  Service& service(std::size_t s) {
    return s == 0 ? static_cast<Service&>(*first) : static_cast<Service&>(*second);
  }
  static std::unique_ptr<RowHolder> made() {
    const TableSettings settings{.name = "t",
                                 .dim = kRowDim,
                                 .rows = 20,
                                 .initial = {"uniform", {{"bound", 0.5}}},
                                 .rule = row_job::kSgd,
                                 .staleness = {"none"},
                                 .seed = 1};
    return std::make_unique<RowHolder>(std::vector{std::make_shared<Table>(settings)},
                                       std::vector<std::size_t>());
  }

  const std::vector<float> initial_ = std::vector<float>(kEach, 1.0f);
  const std::unique_ptr<const Rule> rule_ = make_rule(row_job::kSgd);
  const std::unique_ptr<RowHolder> holders_[2] = {made(), made()};
  Peer cable_[2] = {0, 0};
  Peer last_ = 0;
  None none_;
};

}  // namespace

TEST_CASE("of a server behind the first a lane has one lookup a grant, and pushes no other rows") {
  Two two("asp");
  auto lane = two.lane(0);
  const auto refused = [&](std::uint16_t kind, const Bytes& bytes, const char* why) {
    CHECK_THROWS_WITH_AS(two.say(1, lane.at_second, kind, bytes, lane.ticket),
                         doctest::Contains(why), Error);
    two.close(1, lane.at_second);
    two.close(0, lane.at_first);
  };
  refused(kPart, Two::part(0), "without the rows");
  lane = two.lane(0, 1);
  const std::vector<float> rows = two.looked_up(lane, {{3, 7}});
  CHECK(rows.size() == 6);
  refused(kLookup, lookup_of({{3}}, true), "a second lookup");
  lane = two.lane(0, 2);
  two.looked_up(lane, {{3, 7}});
  refused(kPartPull, Two::part(1), "other parameters");
  lane = two.lane(0, 3);
  refused(kLookup, lookup_of({{3, 7}}, false), "for another use");
  lane = two.lane(0, 4);
  CHECK(two.looked_up(lane, {{3, 7}}) == rows);
  two.say(1, lane.at_second, kPart, Two::part(2), lane.ticket);
  CHECK(two.second->server().counts().rows.applied == 2);
  CHECK(two.second->counters().strange == 3);
  CHECK(two.second->counters().lookups == 3);
  const auto next = two.lane(1);
  const std::vector<float> now = two.looked_up(next, {{3, 7}});
  for (std::size_t i = 0; i < 6; ++i) CHECK(now[i] == doctest::Approx(rows[i] - 0.02 * 0.5));
}

TEST_CASE("a server without tables is asked for no rows") {
  const auto rule = make_rule(row_job::kSgd);
  const std::vector<float> initial(5, 0.5f);
  PartService service({"asp", {{"workers", 2}, {"batch", 4}, {"examples", 80}}},
                      {initial.data(), 5, 2, 1, *rule}, {1, 2, 3, 1});
  HeldPost post;
  service.open(post);
  service.come(1);
  for (const std::uint16_t kind : {kLookup, kModeRead}) {
    CHECK_THROWS_WITH_AS(service.place(1, {.kind = kind, .length = 16}),
                         doctest::Contains("without rows"), Error);
  }
}

TEST_CASE("what comes of a lease that is over when it is there is refused behind the first, too") {
  for (const std::uint16_t kind : {kPart, kLookup}) {
    CAPTURE(kind);
    Two two("sync");
    const auto lane = two.lane(0);
    if (kind == kPart) two.looked_up(lane, {{3, 7}});
    const Bytes bytes = kind == kPart ? Two::part(2) : lookup_of({{3, 7}}, true);
    const FrameHeader header = two.place(1, lane.at_second, kind, bytes, lane.ticket);
    two.close(0, lane.at_first);
    two.granted_by_first(0);  // its next life
    two.tell();
    CHECK(two.posts[1].take(lane.at_second).first.correlation != lane.ticket);
    CHECK_THROWS_WITH_AS(two.look_at(1, lane.at_second, header),
                         doctest::Contains("under another ticket"), Error);
    CHECK(two.second->counters().strange == 1);
    two.close(1, lane.at_second);
    CHECK(two.second->failure() == "");
  }
}

TEST_CASE("gradients of rows that are not finite are left out with their part") {
  for (const char* const mode : {"asp", "sync"}) {
    CAPTURE(mode);
    Two two(mode);
    const auto lane = two.lane(0);
    const std::vector<float> rows = two.looked_up(lane, {{3, 7}});
    Bytes bytes = Two::part(2);
    const float infinite = std::numeric_limits<float>::infinity();
    std::memcpy(bytes.data() + bytes.size() - sizeof infinite, &infinite, sizeof infinite);
    two.say(1, lane.at_second, kPart, bytes, lane.ticket);
    CHECK(two.second->counters().not_finite == 1);
    CHECK(two.second->server().counts().rows.applied == 0);
    CHECK(two.looked_up(two.lane(1), {{3, 7}}) == rows);
  }
}

TEST_CASE("frames of any length and content change no row behind the first that is not theirs") {
  Two two("gba");
  std::mt19937 random(12);
  std::uint64_t refused = 0, looked = 0, pushed = 0;
  std::uint32_t life = 0;
  for (std::size_t i = 0; i < asked_for("LEASHED_FUZZ", 5'000); ++i) {
    const Peer peer = two.come(1);
    Ids ids(1);
    for (std::uint64_t id = 0; id < 20; ++id) {
      if (random() % 3 == 0) ids[0].push_back(id);
    }
    const auto spoil = [&](Bytes bytes) {
      const auto at = [&] { return random() % std::max<std::size_t>(1, bytes.size()); };
      if (random() % 3 == 0 && !bytes.empty()) {
        bytes[std::min(at(), at())] = static_cast<std::byte>(random());
      }
      if (random() % 8 == 0) bytes.resize(bytes.size() + random() % 9 - 4);
      return bytes;
    };
    try {
      if (random() % 8 == 0) {
        Bytes read = mode_hello(1, 50, 1, 2);
        const Bytes lookup = lookup_of(ids, false);
        read.insert(read.end(), lookup.begin(), lookup.end());
        two.say(1, peer, kModeRead, spoil(read), 5);
      } else {
        Bytes hello;
        put(hello, PartHello{1, 9, 1, 2, static_cast<std::uint32_t>(random() % 2), ++life});
        two.say(1, peer, kPartHello, hello);
        two.posts[1].take(peer);
        two.say(1, peer, kModePull, {});
        const std::uint64_t ticket = two.posts[1].take(peer).first.correlation;
        const auto under = [&] { return random() % 10 == 0 ? random() : ticket; };
        two.say(1, peer, kLookup, spoil(lookup_of(ids, true)), under());
        ++looked;
        two.posts[1].take(peer);
        two.say(1, peer, kPart, spoil(Two::part(ids[0].size(), 1e-3f)), under());
        ++pushed;
      }
    } catch (const Error&) {
      ++refused;
    }
    two.close(1, peer);
    REQUIRE(two.second->failure() == "");
  }
  CHECK(refused > 0);
  CHECK(looked > pushed);
  CHECK(pushed > 0);
  CHECK(two.second->counters().lanes == 2);
  CHECK(two.second->counters().reads > 0);
}
