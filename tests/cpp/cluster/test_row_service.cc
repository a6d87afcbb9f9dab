// What an embedding server answers, without a socket or a thread: under schedules of trainers that
// come and go, are cut off, and say what does not belong there, its rows and answers are those of
// the plainest server.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cluster/row_frames.h"
#include "cluster/row_reference.h"
#include "leashed/base/error.h"
#include "leashed/cluster/row_service.h"

using namespace leashed;

namespace {

constexpr std::size_t kMine = 1, kServers = 3;
constexpr std::uint64_t kLastId = ~std::uint64_t{0};
const float kNan = std::numeric_limits<float>::quiet_NaN();

// Of four tables the second is another server's, and the last all this one's.
RowPlacement placement() {
  return {
      {{false, RowPlacement::kSpread}, {false, 0}, {true, RowPlacement::kSpread}, {true, kMine}},
      RowPlacement::evenly(kServers)};
}
const std::vector<std::size_t> kNumbers = {0, 2, 3};

using Dims = std::array<std::size_t, 3>;
std::vector<TableSettings> settings_of(const Choice& rule, const Dims& dims = {2, 4, 5}) {
  std::vector<TableSettings> settings;
  for (std::size_t i = 0; i < kNumbers.size(); ++i) {
    const std::size_t number = kNumbers[i];
    TableSettings one{.name = "table " + std::to_string(number),
                      .dim = dims[i],
                      .rows = number == 0 ? std::size_t{700} : 0,
                      .max_bytes = number == 0 ? 0 : std::size_t{1} << 20,
                      .initial = {"uniform", {{"bound", 1}}},
                      .rule = rule,
                      .staleness = {"none"},
                      .seed = 7,
                      .number = static_cast<std::uint32_t>(number)};
    if (number == 0) one.shards = placement().shards(number, kMine);
    if (number == 3) one.evict = "age";  // with room for all that come here
    settings.push_back(one);
  }
  return settings;
}

const Choice kAdagrad{"adagrad",
                      {{"lr", PlainRows::kRate}, {"eps", 1e-10}, {"initial_accumulator", 0}}};

std::vector<std::shared_ptr<Table>> made(const std::vector<TableSettings>& settings) {
  std::vector<std::shared_ptr<Table>> tables;
  for (const TableSettings& one : settings) tables.push_back(std::make_shared<Table>(one));
  return tables;
}

// Some of those that have their rows here.
std::vector<std::uint64_t> ids_here(std::size_t number, std::size_t count) {
  std::vector<std::uint64_t> ids;
  for (std::uint64_t id = 0; ids.size() < count; ++id) {
    if (placement()(number, id) == kMine) ids.push_back(id);
  }
  return ids;
}

std::uint64_t digest_of(const std::vector<TableSettings>& settings) {
  RowDigest digest;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    digest.add(kNumbers[i], {settings[i].name, settings[i].dim, settings[i].rows},
               placement().shards(kNumbers[i], kMine));
  }
  return digest.value();
}

struct Sent final : Outbox {
  void send(const FrameHeader& header, Connection::Parts parts) override {
    REQUIRE_FALSE(sent);  // one frame for each that came
    sent = header;
    for (const auto& part : parts) payload.insert(payload.end(), part.begin(), part.end());
  }
  std::optional<FrameHeader> sent;
  Bytes payload;
};

// Hands in whole frames, as a loop does; of a peer whose frame is refused the service hears no more
// but that it has gone.
struct Wire {
  // The answer; of a drop there is none.
  Bytes say(Peer peer, std::uint16_t kind, std::uint64_t correlation, const Bytes& payload) {
    Sent out;
    try {
      const FrameHeader header{.kind = kind, .length = payload.size(), .correlation = correlation};
      REQUIRE(kind < kRowLimits.size());
      REQUIRE(payload.size() <= kRowLimits[kind]);
      const std::span<std::byte> place = service->place(peer, header);
      REQUIRE(place.size() == payload.size());
      if (!payload.empty()) std::memcpy(place.data(), payload.data(), payload.size());
      service->frame(peer, header, out);
    } catch (const Error&) {
      REQUIRE_FALSE(out.sent);
      service->gone(peer);
      throw;
    }
    REQUIRE(out.sent.has_value() == (kind != kDropRows));
    if (!out.sent) return {};
    CHECK(out.sent->correlation == (kind == kRowHello || kind == kProbe ? 0 : correlation));
    CHECK(out.sent->kind == (kind == kRowHello ? kRowWelcome
                             : kind == kLookup ? kRows
                             : kind == kProbe  ? kProbe
                                               : kSettled));
    return out.payload;
  }
  Peer come() {
    service->come(++last);
    return last;
  }
  Peer come(std::uint64_t client, std::uint64_t life) {
    const Peer peer = come();
    say(peer, kRowHello, 0, hello_of(client, life, digest));
    return peer;
  }
  // A row's values for each id.
  std::vector<float> look_up(Peer peer, std::uint64_t ticket, const Ids& ids,
                             std::uint32_t trains = 1) {
    const Bytes bytes = say(peer, kLookup, ticket, lookup_of(ids, trains));
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  Settled push(Peer peer, std::uint64_t ticket, std::uint64_t number,
               const std::vector<float>& gradients) {
    return got<Settled>(say(peer, kPushRows, ticket, push_of(number, gradients)));
  }

  explicit Wire(const std::vector<TableSettings>& settings)
      : tables(made(settings)), digest(digest_of(settings)) {
    start(1);
  }
  void start(std::uint64_t boot) {
    service.reset();
    service = std::make_unique<RowService>(tables, kNumbers, placement(), kMine, boot);
  }

  const std::vector<std::shared_ptr<Table>> tables;
  const std::uint64_t digest;
  std::unique_ptr<RowService> service;
  Peer last = 0;
};

// A trainer's thread, which keeps what it has to.
struct Trainer {
  struct Batch {
    std::uint64_t ticket;
    Ids ids;
  };
  struct Push {
    std::uint64_t number, ticket;
    std::vector<float> gradients;
  };
  std::uint64_t client, life;
  Peer peer = 0;  // 0: it has no connection
  std::uint64_t tickets = 0, pushes = 0, boot = 0;
  std::deque<Batch> in_hand;
  std::deque<Push> kept;    // not settled
  std::deque<Push> before;  // settled, the last ones
};

// What may come between a frame and its answer.
enum class Fate { whole, frame_lost, answer_lost, frame_late };

// What a register has, more and less.
constexpr std::array<Dims, 3> kDims = {{{2, 4, 5}, {10, 16, 4}, {16, 1, 33}}};

// Any schedule of several trainers, a server that is started again, and who knows what.
class AnySchedule {
 public:
  explicit AnySchedule(std::uint32_t seed)
      : random_(seed),
        settings_(settings_of(kAdagrad, kDims[seed % kDims.size()])),
        wire_(settings_),
        trainers_(3) {
    for (const TableSettings& one : settings_) plain_.tables.emplace_back(one);
    for (const std::size_t number : kNumbers) here_.push_back(ids_here(number, 30));
    here_.back().push_back(kLastId);
    for (std::size_t i = 0; i < trainers_.size(); ++i) {
      trainers_[i].client = 10 + i;
      trainers_[i].life = ++lives_;
    }
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      CAPTURE(step);
      const std::uint32_t what = one_of(1000);
      if (what < 30) {
        wire_.service->expire();
        plain_.expire();
      } else if (what < 35) {
        restart();
      } else {
        go_on(trainers_[one_of(trainers_.size())]);
      }
      if (step % 50 == 0) compare();
    }
    compare();
    note();
  }

  std::uint64_t settled = 0, cuts = 0, stale = 0, refused = 0, expired = 0, repeated = 0;

 private:
  std::uint32_t one_of(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void go_on(Trainer& trainer) {
    if (one_of(100) == 0) return die(trainer);
    if (trainer.peer == 0) return connect(trainer);
    switch (one_of(9)) {
      case 0:
        return read(trainer);
      case 1:
        return say_wrong(trainer);
      case 2:
        if (!trainer.in_hand.empty()) return let_go(trainer);
        [[fallthrough]];
      case 3:
      case 4:
      case 5:
        if (trainer.in_hand.size() < 3) return look_up(trainer);
        [[fallthrough]];
      default:
        if (!trainer.in_hand.empty() && trainer.kept.size() < 4) return push(trainer);
    }
  }

  Fate fate() {
    const std::uint32_t which = one_of(60);
    return which < 3 ? static_cast<Fate>(1 + which) : Fate::whole;
  }
  // What the server answers, where that arrives.
  std::optional<Bytes> say(Trainer& trainer, std::uint16_t kind, std::uint64_t correlation,
                           const Bytes& payload, const auto& as_plain) {
    switch (const Fate fate = this->fate()) {
      case Fate::whole:
      case Fate::answer_lost: {
        as_plain();
        const Bytes answer = wire_.say(trainer.peer, kind, correlation, payload);
        if (fate == Fate::whole) return answer;
        break;
      }
      case Fate::frame_late: {  // behind the next connection's hello
        const Peer old = std::exchange(trainer.peer, 0);
        connect(trainer);
        CHECK_THROWS_AS(wire_.say(old, kind, correlation, payload), Error);
        ++cuts;
        return std::nullopt;
      }
      case Fate::frame_lost:
        break;
    }
    cut(trainer);
    return std::nullopt;
  }
  void cut(Trainer& trainer) {
    ++cuts;
    wire_.service->gone(std::exchange(trainer.peer, 0));
  }

  void die(Trainer& trainer) {
    if (trainer.peer != 0) cut(trainer);
    trainer.life = ++lives_;
    trainer.tickets = trainer.pushes = trainer.boot = 0;
    trainer.in_hand.clear();
    trainer.kept.clear();
    trainer.before.clear();
  }

  void connect(Trainer& trainer) {
    auto& lives = greeted_[trainer.client];
    if (lives.size() > 1 && lives.back() == trainer.life) {  // who was replaced comes back
      CHECK_THROWS_AS(wire_.come(trainer.client, lives[lives.size() - 2]), Error);
    }
    if (lives.empty() || lives.back() != trainer.life) lives.push_back(trainer.life);
    trainer.peer = wire_.come();
    plain_.hello(trainer.client, trainer.life);
    const auto welcome = got<RowWelcome>(wire_.say(
        trainer.peer, kRowHello, 0, hello_of(trainer.client, trainer.life, wire_.digest)));
    CHECK(welcome.boot == boot_);
    CHECK(welcome.applied == plain_.clients.at(trainer.client).applied);
    CHECK(welcome.outcomes.bits() == plain_.clients.at(trainer.client).last_outcomes());
    CHECK(welcome.in_rows == plain_.clients.at(trainer.client).in_rows);
    if (trainer.boot != 0 && trainer.boot != boot_) {  // nothing of before is there
      trainer.in_hand.clear();
      trainer.kept.clear();
      trainer.before.clear();
    }
    trainer.boot = boot_;
    // What it knows to be applied is sent again, too, by who does not look at what it was told.
    const bool blind = one_of(2) == 0;
    auto kept = std::exchange(trainer.kept, {});
    if (blind) {
      kept.insert(kept.begin(), trainer.before.begin(), trainer.before.end());
      trainer.before.clear();
    }
    for (const Trainer::Push& push : kept) {
      if (!blind && push.number <= welcome.applied) continue;
      const auto expected = plain_.push(trainer.client, push.ticket, push.number, push.gradients);
      REQUIRE(expected);
      same(wire_.push(trainer.peer, push.ticket, push.number, push.gradients), *expected);
      settle(trainer, push);
    }
  }

  void look_up(Trainer& trainer) {
    const Ids ids = some_ids();
    const std::uint64_t ticket = ++trainer.tickets;
    const std::uint64_t boot = boot_;
    std::vector<PlainRows::Row> rows;
    const auto as_plain = [&] {
      rows = rows_of(ids);
      plain_.look_up(trainer.client, ticket, ids);
    };
    std::optional<Bytes> answer = say(trainer, kLookup, ticket, lookup_of(ids, true), as_plain);
    if (!answer) {  // again, or never: then nobody drops what may be held
      if (one_of(2) == 0) return;
      if (trainer.peer == 0) connect(trainer);
      CHECK(boot == boot_);
      as_plain();
      answer = wire_.say(trainer.peer, kLookup, ticket, lookup_of(ids, true));
    }
    are_values(*answer, rows);
    trainer.in_hand.push_back({ticket, ids});
  }
  void read(Trainer& trainer) {
    const Ids ids = some_ids();
    const auto rows = rows_of(ids);
    const auto answer = say(trainer, kLookup, one_of(2), lookup_of(ids, false), [] {});
    if (answer) are_values(*answer, rows);
  }
  void push(Trainer& trainer) {
    const Trainer::Batch batch = trainer.in_hand.front();
    trainer.in_hand.pop_front();
    Trainer::Push push{++trainer.pushes, batch.ticket, gradients_of(batch.ids)};
    if (one_of(20) == 0 && !push.gradients.empty()) {
      push.gradients[one_of(push.gradients.size())] = kNan;
    }
    std::optional<Settled> expected;
    trainer.kept.push_back(push);
    const auto answer =
        say(trainer, kPushRows, push.ticket, push_of(push.number, push.gradients), [&] {
          expected = plain_.push(trainer.client, push.ticket, push.number, push.gradients);
          REQUIRE(expected);
        });
    if (!answer) return;
    same(got<Settled>(*answer), *expected);
    trainer.kept.pop_back();
    settle(trainer, push);
  }
  void let_go(Trainer& trainer) {
    const std::uint64_t ticket = trainer.in_hand.front().ticket;
    trainer.in_hand.pop_front();
    say(trainer, kDropRows, ticket, drop(), [&] { plain_.drop(trainer.client, ticket); });
  }

  // Each is refused, and changes nothing; the trainer comes back.
  void say_wrong(Trainer& trainer) {
    const Ids ids = some_ids();
    const std::uint64_t next = trainer.tickets + 1, number = trainer.pushes + 1;
    Bytes lookup = lookup_of(ids, one_of(2) == 0);
    const auto wrong = [&](std::uint16_t kind, std::uint64_t correlation, const Bytes& payload) {
      CHECK_THROWS_AS(wire_.say(trainer.peer, kind, correlation, payload), Error);
    };
    switch (one_of(14)) {
      case 0:  // more or less than is counted
        lookup.resize(lookup.size() + 8);
        wrong(kLookup, next, lookup);
        break;
      case 1:
        lookup.resize(lookup.size() - 1 - one_of(lookup.size()));
        wrong(kLookup, next, lookup);
        break;
      case 2: {  // more than there is memory for
        const std::uint32_t count = 0x80000000u + one_of(1000);
        std::memcpy(lookup.data() + sizeof(LookupHead) + 4 * one_of(3), &count, sizeof count);
        wrong(kLookup, next, lookup);
        break;
      }
      case 3: {  // of other tables
        Ids more = ids;
        more.resize(one_of(2) == 0 ? 4 : 2);
        wrong(kLookup, next, lookup_of(more, true));
        break;
      }
      case 4: {  // of another server, or of none
        Ids others = ids;
        const std::size_t table = one_of(2);
        others[table].push_back(here_[table].front() + (table == 0 ? 1 : 0));
        if (table == 0 && one_of(2) == 0) others[table].back() = 700 + one_of(1000);
        if (table == 1) {
          while (placement()(2, others[1].back()) == kMine) ++others[1].back();
        }
        wrong(kLookup, next, lookup_of(others, one_of(2) == 0));
        break;
      }
      case 5:  // without a ticket
        wrong(kLookup, 0, lookup_of(ids, true));
        break;
      case 6:
        wrong(kPushRows, next, push_of(number, {}));
        break;
      case 7:
        wrong(kPushRows, 0, push_of(number, {}));
        break;
      case 8: {  // of other rows than were looked up
        if (trainer.in_hand.empty() || is_expired(trainer)) return;
        auto gradients = gradients_of(trainer.in_hand.front().ids);
        if (gradients.empty() || one_of(2) == 0) {
          gradients.resize(gradients.size() + 1);
        } else {
          gradients.pop_back();
        }
        wrong(kPushRows, trainer.in_hand.front().ticket, push_of(number, gradients));
        break;
      }
      case 9:
        wrong(kPushRows, trainer.in_hand.empty() ? next : trainer.in_hand.front().ticket,
              Bytes(one_of(sizeof(PushHead))));
        break;
      case 10:  // a number that no push has
        wrong(kPushRows, trainer.in_hand.empty() ? next : trainer.in_hand.front().ticket,
              push_of(0, {}));
        break;
      case 11:
        wrong(kDropRows, next, Bytes(one_of(sizeof(RowDrop))));
        break;
      case 12:  // what it has said already
        wrong(kRowHello, 0, hello_of(trainer.client, trainer.life, wire_.digest));
        break;
      default:  // what servers say
        wrong(one_of(2) == 0 ? kRows : kSettled, next, Bytes(one_of(2) == 0 ? 0 : 24));
    }
    ++refused;
    trainer.peer = 0;
  }
  bool is_expired(const Trainer& trainer) {
    return plain_.clients.at(trainer.client).tickets.at(trainer.in_hand.front().ticket).expired;
  }

  void settle(Trainer& trainer, const Trainer::Push& push) {
    ++settled;
    trainer.before.push_back(push);
    if (trainer.before.size() > 4) trainer.before.pop_front();
  }

  void restart() {
    note();
    const auto applied = wire_.service->applied();
    const std::uint64_t pushes = wire_.service->counters().pushes;
    for (Trainer& trainer : trainers_) trainer.peer = 0;
    wire_.start(++boot_);
    wire_.service->restore(applied, pushes);
    plain_.restart();
    greeted_.clear();
  }
  void note() {
    const RowService::Counters counters = wire_.service->counters();
    expired += counters.expired;
    repeated += counters.repeated;
  }

  Ids some_ids() {
    Ids ids(here_.size());
    for (std::size_t t = 0; t < ids.size(); ++t) {
      if (one_of(5) == 0) continue;
      ids[t] = here_[t];
      std::ranges::shuffle(ids[t], random_);
      ids[t].resize(one_of(12));
    }
    return ids;
  }
  std::vector<float> gradients_of(const Ids& ids) {
    std::normal_distribution<float> normal;
    std::vector<float> gradients;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (std::size_t i = 0; i < ids[t].size() * settings_[t].dim; ++i) {
        gradients.push_back(normal(random_));
      }
    }
    return gradients;
  }
  std::vector<PlainRows::Row> rows_of(const Ids& ids) const {
    std::vector<PlainRows::Row> rows;
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (const auto id : ids[t]) rows.push_back(plain_.tables[t].peek(id));
    }
    return rows;
  }
  static void are_values(const Bytes& bytes, const std::vector<PlainRows::Row>& rows) {
    const auto* values = reinterpret_cast<const float*>(bytes.data());
    std::size_t floats = 0;
    for (const auto& row : rows) {
      for (const double theta : row.theta) {
        REQUIRE((floats + 1) * sizeof(float) <= bytes.size());
        REQUIRE(values[floats++] == doctest::Approx(theta).epsilon(1e-5));
      }
    }
    REQUIRE(bytes.size() == floats * sizeof(float));
  }
  void same(const Settled& told, const Settled& expected) {
    REQUIRE(told.applied == expected.applied);
    REQUIRE(told.settling == expected.settling);
    REQUIRE(told.in_rows == expected.in_rows);
    REQUIRE(told.publication.applied == expected.publication.applied);
    REQUIRE(told.publication.staleness == expected.publication.staleness);
    REQUIRE(told.publication.stalest == expected.publication.stalest);
    REQUIRE(told.publication.octaves == expected.publication.octaves);
    stale += told.publication.staleness;
  }

  void compare() {
    for (std::size_t t = 0; t < plain_.tables.size(); ++t) {
      const PlainRows& plain = plain_.tables[t];
      for (const auto& [id, row] : plain.rows) {
        std::vector<float> values(plain.dim);
        std::uint32_t version;
        wire_.tables[t]->lookup(&id, 1, values.data(), &version);
        for (std::size_t j = 0; j < plain.dim; ++j) {
          REQUIRE(values[j] == doctest::Approx(row.theta[j]).epsilon(1e-5));
        }
      }
      if (!wire_.tables[t]->grows()) continue;
      std::size_t rows = plain.rows.size();
      for (const std::uint64_t always : {std::uint64_t{0}, kLastId}) {
        rows += plain.rows.contains(always) ? 0 : 1;
      }
      REQUIRE(wire_.tables[t]->growth().statistics().rows == rows);
    }
    std::vector<std::array<std::uint64_t, 6>> of, expected;
    for (const auto& [client, life, number, outcomes, has] : wire_.service->applied()) {
      of.push_back({client, life, number, outcomes.bits(), has.pushes, has.examples});
    }
    for (const auto& [number, client] : plain_.clients) {
      expected.push_back({number, client.life, client.applied, client.last_outcomes(),
                          client.in_rows.pushes, client.in_rows.examples});
    }
    REQUIRE(of == expected);
    const RowService::Counters counters = wire_.service->counters();
    REQUIRE(counters.lookups == plain_.lookups);
    REQUIRE(counters.pushes == plain_.pushes);
    REQUIRE(counters.not_finite == plain_.not_finite);
    REQUIRE(counters.expired == plain_.expired);
    REQUIRE(counters.repeated == plain_.repeated);
    REQUIRE(counters.clients == plain_.clients.size());
  }

  std::mt19937 random_;
  const std::vector<TableSettings> settings_;
  Wire wire_;
  PlainServer plain_;
  std::vector<std::vector<std::uint64_t>> here_;  // ids that come, by table
  std::vector<Trainer> trainers_;
  // Lives by which a client has come since the server was started.
  std::map<std::uint64_t, std::vector<std::uint64_t>> greeted_;
  std::uint64_t lives_ = 100, boot_ = 1;
};

}  // namespace

TEST_CASE("whatever the schedule, rows and answers are those of the plainest server") {
  std::uint64_t settled = 0, cuts = 0, stale = 0, refused = 0, expired = 0, repeated = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    AnySchedule schedule(seed);
    schedule.run(150);
    settled += schedule.settled;
    cuts += schedule.cuts;
    stale += schedule.stale;
    refused += schedule.refused;
    expired += schedule.expired;
    repeated += schedule.repeated;
  }
  CHECK(settled > 15'000);
  CHECK(cuts > 1'500);
  CHECK(stale > 3'000);
  CHECK(refused > 3'000);
  CHECK(expired > 100);
  CHECK(repeated > 300);
}

TEST_CASE("a hello says who somebody is, with the tables that are here, once, and comes first") {
  Wire wire(settings_of(kAdagrad));
  const Ids none(3);
  CHECK_THROWS_AS(wire.look_up(wire.come(), 1, none), Error);
  CHECK_THROWS_AS(wire.push(wire.come(), 1, 1, {}), Error);
  CHECK_THROWS_AS(wire.say(wire.come(), kDropRows, 1, drop()), Error);
  CHECK_THROWS_AS(wire.say(wire.come(), kRowHello, 0, Bytes(23)), Error);
  const Peer other = wire.come();
  CHECK_THROWS_AS(wire.say(other, kRowHello, 0, hello_of(1, 5, wire.digest + 1)), Error);
  CHECK(wire.service->counters().clients == 0);
  const Peer asks = wire.come();
  CHECK(wire.say(asks, kProbe, 0, {std::byte{42}}) == Bytes{std::byte{42}});
  CHECK(got<RowWelcome>(wire.say(asks, kRowHello, 0, hello_of(1, 5, wire.digest))).boot == 1);
  CHECK(wire.look_up(asks, 1, none).empty());
  CHECK(wire.push(asks, 1, 1, {}).applied == 1);  // of no rows, it counts as others do
  CHECK(wire.service->counters().pushes == 1);
  const Peer again = wire.come(1, 5);
  CHECK_THROWS_AS(wire.look_up(asks, 2, none), Error);  // another has its place
  CHECK(wire.look_up(again, 2, none).empty());
  CHECK(wire.service->counters().clients == 1);
}

TEST_CASE("what a peer may not say gets no memory, and what it has it leaves when it goes") {
  Wire wire(settings_of(kAdagrad));
  const auto place = [&](Peer peer, std::uint16_t kind, std::uint64_t length) {
    wire.service->place(peer, {.kind = kind, .length = length});
  };
  const auto bytes = [&] { return wire.service->counters().payload_bytes; };
  const Peer unknown = wire.come();
  for (const std::uint16_t kind : {kLookup, kPushRows, kRows, kSettled, kRowWelcome, kDropRows}) {
    CHECK_THROWS_AS(place(unknown, kind, 8), Error);
  }
  CHECK(bytes() == 0);
  const Peer known = wire.come(1, 5);
  const std::uint64_t before = bytes();
  CHECK(before < 1000);
  for (const std::uint16_t kind : {kRows, kSettled, kRowWelcome}) {
    CHECK_THROWS_AS(place(known, kind, 8), Error);
  }
  // As much as what was looked up, and no more.
  CHECK_THROWS_AS(place(known, kPushRows, sizeof(PushHead) + 4), Error);
  CHECK(bytes() == before);
  const Ids ids{ids_here(0, 100), {}, ids_here(3, 20)};
  const std::size_t floats = wire.look_up(known, 1, ids).size();
  CHECK(floats == 100 * 2 + 20 * 5);
  CHECK_THROWS_AS(place(known, kPushRows, sizeof(PushHead) + 4 * floats + 4), Error);
  place(known, kPushRows, sizeof(PushHead) + 4 * floats);
  CHECK(bytes() >= 4 * floats);
  const RowService::Counters counters = wire.service->counters();
  CHECK(counters.looked_up == 120);
  wire.service->gone(unknown);
  wire.service->gone(known);
  CHECK(bytes() == 0);
  // It may be in the midst of what it will never end.
  const Peer back = wire.come(1, 5);
  CHECK(wire.push(back, 1, 1, std::vector<float>(floats)).publication.applied == 120);
  CHECK(wire.service->counters().pushed == 120);
}

TEST_CASE("memory of pools is counted, no more than their lookups need, and let go with them") {
  Wire wire(settings_of(kAdagrad));
  const auto bytes = [&] { return wire.service->counters().payload_bytes; };
  const Ids ids{ids_here(0, 50), {}, {}};
  // So many pools of so many entries each, with their weights.
  const auto lookup = [&](std::uint32_t pools, std::uint32_t entries, bool trains) {
    const AskedPools one{{0, static_cast<std::uint8_t>(Pooling::max), 4, 1, 1, 1, entries},
                         {entries},
                         std::vector<std::uint32_t>(entries, 49),
                         std::vector<float>(entries, 1)};
    return lookup_of(ids, {0, 0, 0}, std::vector(pools, one), trains);
  };
  constexpr std::uint32_t kMany = 20'000, kPoolsOfOne = 10;
  const Bytes large = lookup(kPoolsOfOne, kMany, true), small = lookup(1, 3, true);
  const std::uint64_t least = std::uint64_t{kPoolsOfOne} * kMany * 8;  // of a ticket
  const Peer asks = wire.come(1, 5);
  for (std::uint64_t ticket = 1; ticket <= 2 * kTickets; ++ticket) {
    wire.say(asks, kLookup, ticket, large);
  }
  wire.say(asks, kLookup, 0, lookup(kPoolsOfOne, kMany, false));
  CHECK(bytes() >= (kTickets + 1) * least + large.size());
  CHECK(bytes() < (kTickets + 1) * 2 * least + 2 * large.size());
  const std::uint64_t before = bytes();
  for (std::uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
    wire.say(asks, kLookup, 2 * kTickets + ticket, small);
  }
  CHECK(before - bytes() > kTickets * (least - 10'000));
  wire.service->gone(asks);
  CHECK(bytes() > 0);  // it may come back
  CHECK(bytes() < kTickets * 10'000);
  const Peer back = wire.come(1, 5);
  for (std::uint64_t ticket = 1; ticket <= kTickets; ++ticket) {
    wire.say(back, kDropRows, 2 * kTickets + ticket, drop());
  }
  wire.say(back, kLookup, 3 * kTickets + 1, large);
  Bytes wrong = large;
  wrong.resize(wrong.size() - 8);
  CHECK_THROWS_WITH_AS(wire.say(back, kLookup, 3 * kTickets + 2, wrong), doctest::Contains("pool"),
                       Error);  // and it is gone
  CHECK(bytes() >= least);
  CHECK(bytes() < 2 * least);
  wire.service->expire();
  wire.service->expire();
  CHECK(bytes() == 0);
  const Peer other = wire.come(1, 6);
  wire.say(other, kLookup, 1, large);
  wire.say(other, kDropRows, 1, drop());
  wire.service->gone(other);
  CHECK(bytes() == 0);
}

TEST_CASE("what a lookup counts is refused for its sums, also where these would wrap") {
  Wire wire(settings_of(kAdagrad, {2, 16, 5}));
  const auto lookup = [&](std::uint32_t trains, std::initializer_list<std::uint32_t> counts,
                          std::size_t ids) {
    Bytes bytes;
    put(bytes, LookupHead{trains, static_cast<std::uint32_t>(counts.size())});
    for (const std::uint32_t count : counts) put(bytes, count);
    put(bytes, std::uint32_t{0});
    bytes.resize(bytes.size() + ids * sizeof(std::uint64_t));
    return bytes;
  };
  const auto says = [&](const Bytes& bytes, const char* what) {
    const Peer peer = wire.come(1, 5);
    CHECK_THROWS_WITH_AS(wire.say(peer, kLookup, 1, bytes), doctest::Contains(what), Error);
    CHECK(wire.service->counters().payload_bytes == 0);
  };
  constexpr std::uint32_t kHalf = 1u << 31;
  says(lookup(1, {kHalf, kHalf, 0}, 0), "other ids than it counts");
  says(lookup(1, {kHalf, kHalf - 1, 2}, 1), "other ids than it counts");
  says(lookup(0, {~0u, ~0u, ~0u}, 3), "other ids than it counts");
  says(lookup(5, {0, 0, 0}, 0), "without its counts");
  constexpr std::uint32_t kMany = (256 << 20) / (16 * sizeof(float)) + 1;
  says(lookup(0, {0, kMany, 0}, kMany), "too many rows");  // before it looks at one
  CHECK(wire.service->counters().looked_up == 0);
}

TEST_CASE("there is an end of how many clients may be made up, and who was there goes on") {
  Wire wire(settings_of(kAdagrad));
  const Peer first = wire.come(0, 5);
  constexpr std::uint64_t kMost = 1 << 16;
  for (std::uint64_t client = 1; client < kMost; ++client) {
    wire.service->gone(wire.come(client, 5));
  }
  CHECK(wire.service->counters().clients == kMost);
  CHECK_THROWS_WITH_AS(wire.come(kMost, 5), doctest::Contains("more clients"), Error);
  wire.look_up(first, 1, {{1}, {}, {}});
  CHECK(wire.push(first, 1, 1, {1, 1}).applied == 1);
}

TEST_CASE("a life is not told what became of another's pushes") {
  Wire wire(settings_of(kAdagrad));
  const Ids ids{{1}, {}, {}};
  Peer peer = wire.come(1, 5);
  wire.look_up(peer, 1, ids);
  CHECK(wire.push(peer, 1, 3, {kNan, 1}).settling == Settling::not_finite);
  peer = wire.come(1, 6);
  wire.look_up(peer, 1, ids);
  wire.push(peer, 1, 9, {1, 1});
  const Settled settled = wire.push(peer, 1, 3, {1, 1});
  CHECK(settled.applied == 9);
  CHECK(settled.settling == Settling::applied);
}

TEST_CASE(
    "a dead life whose hello comes late shuts nobody out, whether it was here before or not") {
  Wire wire(settings_of(kAdagrad));
  const Ids ids{{1}, {}, {}};
  const Peer peer = wire.come(1, 6);
  wire.look_up(peer, 1, ids);
  CHECK(wire.push(peer, 1, 1, {1, 1}).applied == 1);
  CHECK_THROWS_WITH_AS(wire.come(1, 5), doctest::Contains("in whose place another"), Error);
  wire.look_up(peer, 2, ids);
  CHECK(wire.push(peer, 2, 2, {1, 1}).applied == 2);
  const auto applied = wire.service->applied();
  wire.start(2);
  wire.service->restore(applied, 2);
  CHECK_THROWS_AS(wire.come(1, 5), Error);
  wire.come(1, 7);
  CHECK_THROWS_AS(wire.come(1, 6), Error);
}

TEST_CASE("what became of the last eight pushes is kept by how far they are behind the last") {
  Outcomes outcomes;
  const Settling some[] = {Settling::applied, Settling::expired, Settling::not_finite};
  for (std::uint64_t number = 1; number <= 20; ++number) outcomes.add(some[number % 3], 1);
  for (std::uint64_t followed = 0; followed < kTickets; ++followed) {
    CHECK(outcomes[followed] == some[(20 - followed) % 3]);
  }
  CHECK_FALSE(outcomes[kTickets].has_value());
  CHECK_FALSE(outcomes[std::uint64_t{1} << 63].has_value());
  outcomes.add(Settling::expired, 3);  // two between are lost
  CHECK(outcomes[0] == Settling::expired);
  CHECK(outcomes[3] == some[20 % 3]);
  outcomes.add(Settling::not_finite, kTickets);
  CHECK(outcomes.bits() == static_cast<std::uint64_t>(Settling::not_finite));
  CHECK_FALSE(Outcomes(3)[0].has_value());  // which add() makes of nothing
}

TEST_CASE("the t of an update is how many the tables have had, whoever made them and when") {
  const auto settings =
      settings_of({"adam", {{"lr", 0.1}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}});
  Wire wire(settings);
  const auto plain = made(settings);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  // Updates that both tables have had before.
  const auto update = [](const std::vector<std::shared_ptr<Table>>& tables, const Ids& ids,
                         const std::vector<float>& gradients) {
    const float* gradient = gradients.data();
    for (std::size_t t = 0; t < tables.size(); ++t) {
      tables[t]->update(ids[t].data(), ids[t].size(), gradient, nullptr);
      gradient += ids[t].size() * tables[t]->dim();
    }
  };
  const auto some = [&](Ids& ids, std::vector<float>& gradients) {
    ids.clear();
    gradients.clear();
    for (std::size_t t = 0; t < settings.size(); ++t) {
      ids.push_back(ids_here(kNumbers[t], random() % 4));
      for (std::size_t i = 0; i < ids[t].size() * settings[t].dim; ++i) {
        gradients.push_back(normal(random));
      }
    }
  };
  Ids ids;
  std::vector<float> gradients;
  for (int i = 0; i < 5; ++i) {
    some(ids, gradients);
    for (const auto& tables : {wire.tables, plain}) update(tables, ids, gradients);
  }
  std::uint64_t pushes = 0;
  wire.start(1);
  for (const std::uint64_t boot : {2, 3}) {
    std::uint64_t number = 0;
    const Peer peers[] = {wire.come(1, boot), wire.come(2, boot)};
    for (; number < 20; ++number) {
      some(ids, gradients);
      for (const Peer peer : peers) {
        wire.look_up(peer, number + 1, ids);
        wire.push(peer, number + 1, number + 1, gradients);
        update(plain, ids, gradients);
        ++pushes;
      }
    }
    CHECK(wire.service->counters().pushes == pushes);
    const auto applied = wire.service->applied();
    wire.start(boot);  // whose tables have their steps
    wire.service->restore(applied, pushes);
    CHECK(wire.service->counters().pushes == pushes);
  }
  for (std::size_t t = 0; t < settings.size(); ++t) {
    CAPTURE(t);
    CHECK(wire.tables[t]->steps() == plain[t]->steps());
    CHECK(wire.tables[t]->digest() == plain[t]->digest());
  }
}

TEST_CASE("a push for one table is a step of that one alone, whether or not it has rows here") {
  const auto settings =
      settings_of({"adam", {{"lr", 0.1}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}}});
  Wire wire(settings);
  const auto plain = made(settings);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const Peer peer = wire.come(1, 1);
  std::uint64_t ticket = 0;
  for (int i = 0; i < 60; ++i) {
    const std::size_t t = random() % settings.size();
    Ids ids(settings.size());
    ids[t] = ids_here(kNumbers[t], random() % 3);
    std::vector<float> gradients(ids[t].size() * settings[t].dim);
    for (float& each : gradients) each = normal(random);
    wire.look_up(peer, ++ticket, ids, kOfOne + static_cast<std::uint32_t>(t));
    const Settled told = wire.push(peer, ticket, ticket, gradients);
    CHECK(told.settling == Settling::applied);
    CHECK(told.publication.applied == ids[t].size());
    plain[t]->update(ids[t].data(), ids[t].size(), gradients.data(), nullptr);
  }
  CHECK(wire.service->counters().pushes == 60);
  CHECK(wire.service->counters().apart == 60);
  wire.service.reset();
  for (std::size_t t = 0; t < settings.size(); ++t) {
    CAPTURE(t);
    CHECK(wire.tables[t]->steps() == plain[t]->steps());
    CHECK(wire.tables[t]->digest() == plain[t]->digest());
  }
}

TEST_CASE("a lookup for one table has no other's ids, and is for one that there is") {
  Wire wire(settings_of(kAdagrad));
  const Ids ids = {ids_here(0, 1), ids_here(2, 1), {}};
  for (const std::uint32_t trains : {0u, 1u, 2u, 3u}) {
    Wire of(settings_of(kAdagrad));
    if (trains < kOfOne) {
      CHECK_FALSE(of.look_up(of.come(1, 1), 1, ids, trains).empty());
    } else {
      CHECK_THROWS_WITH_AS(of.look_up(of.come(1, 1), 1, ids, trains),
                           doctest::Contains("for one table with another's ids"), Error);
    }
  }
  for (const std::uint32_t trains : {5u, 6u, ~0u}) {
    CHECK_THROWS_WITH_AS(wire.look_up(wire.come(1, 1), 1, {{}, {}, {}}, trains),
                         doctest::Contains("without its counts"), Error);
  }
}

// A table that evicts, and ids that it has no room for beside those that are held.
TEST_CASE("rows that a trainer holds for good are let go, and so when another comes in its place") {
  for (const bool comes_back : {false, true}) {
    CAPTURE(comes_back);
    const auto table = std::make_shared<Table>(Table::Settings{.name = "a",
                                                               .dim = 4,
                                                               .max_bytes = std::size_t{1} << 18,
                                                               .initial = {"zeros"},
                                                               .rule = {"sgd", {{"lr", 0.5}}},
                                                               .staleness = {"none"},
                                                               .evict = "age"});
    RowService service({table}, {0}, {{{true, 0}}, RowPlacement::evenly(1)}, 0, 1);
    RowDigest digest;
    digest.add(0, {"a", 4, 0}, RowPlacement::Shards().set());
    Peer last = 0;
    const auto say = [&](Peer peer, std::uint16_t kind, std::uint64_t ticket, const Bytes& bytes) {
      Sent out;
      const auto place =
          service.place(peer, {.kind = kind, .length = bytes.size(), .correlation = ticket});
      if (!bytes.empty()) std::memcpy(place.data(), bytes.data(), bytes.size());
      service.frame(peer, {.kind = kind, .length = bytes.size(), .correlation = ticket}, out);
      return out.payload;
    };
    const auto come = [&](std::uint64_t client, std::uint64_t life) {
      service.come(++last);
      say(last, kRowHello, 0, hello_of(client, life, digest.value()));
      return last;
    };
    std::uint64_t next = 1;
    const std::size_t capacity = table->growth().statistics().capacity;
    const auto fresh = [&] {
      std::vector<std::uint64_t> ids(capacity / kTickets);
      for (auto& id : ids) id = next++;
      return Ids{ids};
    };
    // As many as there are rows, and more.
    const Peer hung = come(1, 5);
    for (std::uint64_t ticket = 1; ticket <= 2 * kTickets; ++ticket) {
      say(hung, kLookup, ticket, lookup_of(fresh(), true));
    }
    CHECK(service.counters().expired == kTickets);  // beside those that there may be
    const Peer other = come(2, 7);
    std::uint64_t ticket = 0;
    const auto refused = [&] {
      const Ids ids = fresh();
      say(other, kLookup, ++ticket, lookup_of(ids, true));
      const std::vector<float> nothing(ids[0].size() * 4);
      const auto settled = got<Settled>(say(other, kPushRows, ticket, push_of(ticket, nothing)));
      return settled.publication.refused + settled.publication.deferred;
    };
    CHECK(refused() > capacity / kTickets / 2);
    service.gone(hung);  // it may come back
    CHECK(refused() > capacity / kTickets / 2);
    if (comes_back) {
      const Peer back = come(1, 6);
      CHECK_THROWS_AS(say(back, kPushRows, 2 * kTickets, push_of(1, {})), Error);
    } else {
      service.expire();
      service.expire();
      CHECK(service.counters().expired == 2 * kTickets);
    }
    for (std::size_t i = 0; i < kTickets; ++i) {
      CHECK(refused() < capacity / kTickets / 20);  // those to go are found by sampling
    }
    if (!comes_back) {
      const Peer back = come(1, 5);
      const auto settled = got<Settled>(say(back, kPushRows, 2 * kTickets, push_of(1, {})));
      CHECK(settled.applied == 1);
      CHECK(settled.settling == Settling::expired);
    }
  }
}

TEST_CASE("a push that comes again is told what became of it, as long as it may be kept") {
  Wire wire(settings_of(kAdagrad));
  const Peer peer = wire.come(1, 5);
  const Ids ids{{1}, {}, {}};
  for (std::uint64_t number = 1; number <= kTickets + 2; ++number) {
    wire.look_up(peer, number, ids);
    CHECK(wire.push(peer, number, number, {1, number == 4 ? kNan : 1}).applied == number);
  }
  for (std::uint64_t number = 1; number <= kTickets + 2; ++number) {
    CAPTURE(number);
    const Settled settled = wire.push(peer, number, number, {1, 1});
    CHECK(settled.applied == kTickets + 2);
    CHECK(settled.settling == (number == 4 ? Settling::not_finite : Settling::applied));
    CHECK(settled.publication.applied == (number > 2 && number != 4 ? 1 : 0));
  }
  CHECK(wire.service->counters().pushes == kTickets + 1);
}

TEST_CASE("a ticket that is looked up again has the rows of then, or none") {
  Wire wire(settings_of(kAdagrad));
  Peer peer = wire.come(1, 5);
  wire.look_up(peer, 1, {{1}, {}, {}});
  wire.service->expire();
  wire.service->expire();
  wire.look_up(peer, 1, {{1, 4}, {}, {}});  // it had been let go
  const Settled settled = wire.push(peer, 1, 1, {1, 1, 1, 1});
  CHECK(settled.settling == Settling::applied);
  CHECK(settled.publication.applied == 2);
  wire.look_up(peer, 2, {{1}, {}, {}});
  CHECK_THROWS_AS(wire.look_up(peer, 2, {{1, 0}, {}, {}}), Error);  // another server's
  peer = wire.come(1, 5);
  CHECK_THROWS_AS(wire.push(peer, 2, 2, {1, 1}), Error);
}

TEST_CASE("an id that comes twice in a lookup harms nobody") {
  Wire wire(settings_of({"sgd", {{"lr", 1}}}));
  const Peer peer = wire.come(1, 5);
  const Ids ids{{1, 1}, {}, {9, 8, 9}};
  const auto values = wire.look_up(peer, 1, ids);
  REQUIRE(values.size() == 2 * 2 + 3 * 5);
  CHECK(values[0] == values[2]);
  CHECK(wire.push(peer, 1, 1, std::vector<float>(values.size(), 1)).publication.applied == 5);
  CHECK(wire.look_up(peer, 2, ids)[0] == doctest::Approx(values[0] - 2));
  wire.say(peer, kDropRows, 2, drop());
}

TEST_CASE("a server is made of the tables that it has rows of, and restored before anybody comes") {
  const auto tables = made(settings_of(kAdagrad));
  const auto make = [&](std::vector<std::shared_ptr<Table>> some,
                        std::vector<std::size_t> numbers) {
    RowService(std::move(some), std::move(numbers), placement(), kMine, 1);
  };
  CHECK_THROWS_WITH_AS(make({tables[0], tables[1]}, {0, 2}),
                       doctest::Contains("of which the placement gives rows to server 1"), Error);
  CHECK_THROWS_AS(make({tables[0], tables[1], tables[2]}, {0, 1, 3}), Error);
  CHECK_THROWS_AS(make({tables[0], tables[1]}, {0, 2, 3}), Error);

  Wire wire(settings_of(kAdagrad));
  const std::vector<RowService::Applied> twice = {{4, 5, 6}, {4, 7, 8}}, once = {{4, 5, 6}};
  CHECK_THROWS_WITH_AS(wire.service->restore(twice, 9), doctest::Contains("client 4"), Error);
  wire.start(2);
  wire.service->restore(once, 9);
  CHECK(wire.service->counters().pushes == 9);
  const auto welcome = [&](std::uint64_t life) {
    return got<RowWelcome>(wire.say(wire.come(), kRowHello, 0, hello_of(4, life, wire.digest)));
  };
  CHECK(welcome(5).applied == 6);
  CHECK_THROWS_AS(wire.service->restore(once, 9), Error);
  CHECK(welcome(6).applied == 0);
}
