// Frames of rows as nobody would send them: those that make sense, with bytes, lengths, kinds,
// tickets and counts changed, to an embedding server, and to a trainer's thread.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "asked.h"
#include "cluster/row_frames.h"
#include "cluster/wires.h"
#include "leashed/base/error.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_service.h"

using namespace leashed;

namespace {

using Random = std::mt19937_64;

// LEASHED_FUZZ: how many; ten million by hand.
std::size_t fuzzed(std::size_t few) { return asked_for("LEASHED_FUZZ", few); }

struct Kept final : Outbox {
  void send(const FrameHeader& what, Connection::Parts parts) override {
    header = what;
    bytes.clear();
    for (const auto& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  }
  FrameHeader header{};
  Bytes bytes;
};

constexpr std::uint64_t kRowsOfA = 64;

// One table whose rows are fixed, and one that grows and evicts.
struct Served {
  explicit Served(std::size_t servers)
      : placement({{false, RowPlacement::kSpread}, {true, RowPlacement::kSpread}},
                  RowPlacement::evenly(servers)) {
    for (std::size_t t = 0; t < 2; ++t) {
      Table::Settings settings{.name = t == 0 ? "a" : "b",
                               .dim = t + 2,
                               .initial = {"zeros"},
                               .rule = {"sgd", {{"lr", 0.1}}},
                               .staleness = {"none"}};
      if (t == 0) {
        settings.rows = kRowsOfA;
        settings.shards = placement.shards(t, 0);
      }
      if (t == 1) {
        settings.max_bytes = 1 << 16;
        settings.evict = "age";
      }
      tables.push_back(std::make_shared<Table>(settings));
      digest.add(t, {settings.name, settings.dim, settings.rows}, placement.shards(t, 0));
    }
    service = std::make_unique<RowService>(tables, std::vector<std::size_t>{0, 1}, placement, 0, 1);
  }

  const RowPlacement placement;
  std::vector<std::shared_ptr<Table>> tables;
  RowDigest digest;
  std::unique_ptr<RowService> service;
};

void change(Random& random, Bytes& bytes, FrameHeader& header) {
  for (std::size_t n = random() % 4; n > 0; --n) {
    switch (random() % 7) {
      case 0:
        header.kind = static_cast<std::uint16_t>(random() % 40);
        break;
      case 1:
        header.correlation = random() % 3 == 0 ? random() : random() % 12;
        break;
      case 2:
        bytes.resize(random() % 2 ? bytes.size() / 2 : bytes.size() + random() % 40);
        break;
      case 3:
        bytes.resize(random() % (bytes.size() + 1));
        break;
      default:
        if (bytes.empty()) break;
        const std::size_t at = random() % bytes.size();
        const std::byte to[] = {std::byte{0}, std::byte{0xFF}, std::byte{0x7F}, std::byte{1}};
        bytes[at] = random() % 2 ? to[random() % 4] : static_cast<std::byte>(random());
    }
  }
}

// Of tables that have ids.
std::vector<AskedPools> some_pools(Random& random, const Ids& ids) {
  std::vector<AskedPools> pools(random() % 4);
  std::erase_if(pools, [&](AskedPools& pool) {
    const std::size_t table = random() % 2;
    if (ids[table].empty()) return true;
    pool.counts.resize(1 + random() % 4);
    for (std::uint32_t& count : pool.counts) {
      count = 1 + random() % 3;
      for (std::uint32_t n = 0; n < count; ++n) {
        pool.places.push_back(static_cast<std::uint32_t>(random() % ids[table].size()));
      }
    }
    const bool weighted = random() % 2, largest = random() % 3 == 0;
    if (weighted) pool.weights.assign(pool.places.size(), 0.5f);
    pool.head = {static_cast<std::uint32_t>(table),
                 static_cast<std::uint8_t>(largest ? Pooling::max : Pooling::mean),
                 static_cast<std::uint8_t>(random() % 2 ? 2 : 4),
                 static_cast<std::uint8_t>(weighted),
                 static_cast<std::uint8_t>(largest && random() % 2),
                 static_cast<std::uint32_t>(pool.counts.size()),
                 static_cast<std::uint32_t>(pool.places.size())};
    return false;
  });
  return pools;
}

}  // namespace

TEST_CASE("an embedding server refuses what makes no sense, and goes on for others") {
  Served served(2);
  RowService& service = *served.service;
  Random random(1);
  std::vector<std::uint64_t> here[2];
  for (std::uint64_t id = 0; id < kRowsOfA; ++id) {
    for (std::size_t t = 0; t < 2; ++t) {
      if (served.placement(t, id) == 0) here[t].push_back(id);
    }
  }
  const auto some = [&] {
    Ids ids(2);
    for (std::size_t t = 0; t < 2; ++t) {
      for (std::size_t n = random() % 6; n > 0; --n) {
        ids[t].push_back(here[t][random() % here[t].size()]);
      }
    }
    return ids;
  };
  std::uint64_t number = 0, ticket = 1;  // of what was said last
  std::size_t floats = 0;
  constexpr std::size_t kPeers = 4;
  Peer last = 0;
  std::vector<Peer> peers;
  std::size_t refused = 0, taken = 0, most = 0;
  for (std::size_t n = 0; n < fuzzed(100'000); ++n) {
    if (peers.size() < kPeers) {
      peers.push_back(++last);
      service.come(last);
    }
    const std::size_t which = random() % peers.size();
    FrameHeader header{.correlation = random() % 12};
    Bytes bytes;
    Ids ids;
    switch (random() % 8) {
      case 0:
      case 1:
        header.kind = kRowHello;
        bytes = hello_of(random() % 3, random() % 3 + 1, served.digest.value());
        break;
      case 2:
      case 3:
      case 4:
        header.kind = kLookup;
        ids = some();
        bytes = lookup_of(ids, random() % 3 > 0);
        floats = 2 * ids[0].size() + 3 * ids[1].size();
        if (random() % 2) {
          const std::vector<std::uint32_t> wanted{
              static_cast<std::uint32_t>(random() % (ids[0].size() + 1)),
              static_cast<std::uint32_t>(random() % (ids[1].size() + 1))};
          const auto pools = some_pools(random, ids);
          bytes = lookup_of(ids, wanted, pools, random() % 3 > 0);
          floats = 2 * wanted[0] + 3 * wanted[1];
          for (const AskedPools& pool : pools) {
            floats += pool.counts.size() * (2 + pool.head.table);
          }
        }
        ticket = header.correlation;
        break;
      case 5:
      case 6:
        header.kind = kPushRows;
        bytes = push_of(++number, std::vector<float>(floats, 0.5f));
        header.correlation = ticket;
        break;
      default:
        header.kind = kDropRows;
        bytes = drop();
    }
    change(random, bytes, header);
    header.length = bytes.size();
    if (n % 97 == 0) service.expire();
    try {
      const std::span<std::byte> place = service.place(peers[which], header);
      REQUIRE(place.size() == bytes.size());
      if (!bytes.empty()) std::memcpy(place.data(), bytes.data(), bytes.size());
      Kept out;
      service.frame(peers[which], header, out);
      ++taken;
    } catch (const Error&) {  // its connection is closed
      ++refused;
      service.gone(peers[which]);
      peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(which));
    }
    most = std::max<std::size_t>(most, service.counters().payload_bytes);
  }
  CHECK(refused > 0);
  CHECK(taken > 0);
  CHECK(most < kPeers * 10'000);  // as what came was long, whatever it said of itself
  CHECK(service.counters().pushes > 0);
  constexpr std::uint64_t kHonest = 0x1122334455667788;
  CHECK(service.counters().pooled > 0);
  // Pools that none can be are refused, each for its own reason.
  const auto refuses = [&](AskedPools pool, std::uint32_t wanted = 0) {
    const Peer peer = ++last;
    service.come(peer);
    const auto hand_in = [&](std::uint16_t kind, const Bytes& bytes) {
      const FrameHeader header{.kind = kind, .length = bytes.size(), .correlation = 1};
      std::memcpy(service.place(peer, header).data(), bytes.data(), bytes.size());
      Kept out;
      service.frame(peer, header, out);
    };
    hand_in(kRowHello, hello_of(kHonest + 1, 1, served.digest.value()));
    const Bytes asked =
        lookup_of({{here[0][0], here[0][1]}, {here[1][0]}}, {wanted, 0}, {pool}, true);
    CHECK_THROWS_AS(hand_in(kLookup, asked), Error);
    service.gone(peer);
  };
  const AskedPools right{{0, 0, 2, 0, 0, 2, 3}, {1, 2}, {0, 1, 1}, {}};
  const auto but = [&right](const auto& change) {
    AskedPools pool = right;
    change(pool);
    return pool;
  };
  refuses(right, 3);                                              // more rows than ids
  refuses(but([](AskedPools& pool) { pool.head.table = 2; }));    // which there is not
  refuses(but([](AskedPools& pool) { pool.head.pooling = 3; }));  // a sequence
  refuses(but([](AskedPools& pool) { pool.head.width = 3; }));
  refuses(but([](AskedPools& pool) { pool.head.weighted = 1; }));  // without weights
  refuses(but([](AskedPools& pool) { pool.head.weighted = 2; }));
  refuses(but([](AskedPools& pool) { pool.head.winners = 1; }));  // of a sum
  refuses(but([](AskedPools& pool) { pool.head.examples = 0; }));
  refuses(but([](AskedPools& pool) { pool.head.entries = 1; }));  // fewer than examples
  refuses(but([](AskedPools& pool) { pool.head.entries = ~0u; }));
  refuses(but([](AskedPools& pool) { pool.head.examples = pool.head.entries = ~0u; }));
  refuses(but([](AskedPools& pool) { pool.counts = {3, 0}; }));    // a bag of none
  refuses(but([](AskedPools& pool) { pool.counts = {1, 1}; }));    // entries of nobody
  refuses(but([](AskedPools& pool) { pool.counts = {1, 3}; }));    // of which there are none
  refuses(but([](AskedPools& pool) { pool.places[2] = 2; }));      // not looked up
  refuses(but([](AskedPools& pool) { pool.places.resize(40); }));  // more than it says
  // Who makes sense is served, being none that frames with some bytes changed have made up.
  for (const Peer peer : peers) service.gone(peer);
  CHECK(service.counters().payload_bytes == 0);
  const auto say = [&](std::uint16_t kind, std::uint64_t ticket, const Bytes& bytes) {
    const FrameHeader header{.kind = kind, .length = bytes.size(), .correlation = ticket};
    std::memcpy(service.place(last, header).data(), bytes.data(), bytes.size());
    Kept out;
    service.frame(last, header, out);
    return out.header.kind;
  };
  service.come(++last);
  CHECK(say(kRowHello, 0, hello_of(kHonest, 1, served.digest.value())) == kRowWelcome);
  CHECK(say(kLookup, 1, lookup_of({{here[0][0], here[0][1]}, {here[1][0]}}, true)) == kRows);
  CHECK(say(kPushRows, 1, push_of(1, std::vector<float>(7))) == kSettled);
  const AskedPools pool{
      {1, static_cast<std::uint8_t>(Pooling::max), 2, 0, 1, 2, 3}, {1, 2}, {0, 0, 0}, {}};
  CHECK(say(kLookup, 2, lookup_of({{here[0][0]}, {here[1][0]}}, {1, 0}, {pool}, true)) == kRows);
  CHECK(say(kPushRows, 2, push_of(2, std::vector<float>(8))) == kSettled);
}

TEST_CASE(
    "a trainer's thread closes what answers something else, and goes on with who makes sense") {
  Served served(1);
  RowService& service = *served.service;
  Random random(2);
  std::unique_ptr<Connection> connection;  // the server's end
  std::unique_ptr<RemoteRows> rows;
  Peer last = 0;
  std::size_t spoilt = 0, right = 0;
  Kept kept;
  const auto end = [&] {
    service.gone(last);
    connection.reset();
  };
  const auto serve = [&] {
    if (connection && rows->missing(0, 0)) end();
    if (!connection) {
      const auto [theirs, here] = pair_of_sockets();
      connection = connected(here, kRowLimits, true, Transport::tcp, Role::accepts);
      service.come(++last);
      rows->adopt(0, 0, theirs, true, Transport::tcp, 0);
      return;
    }
    try {
      if (connection->sending() && !connection->flush()) return;
      const auto header =
          connection->take([&](const FrameHeader& what) { return service.place(last, what); });
      if (!header) return;
      kept.header = {};
      service.frame(last, *header, kept);
      if (kept.header.kind == 0) return;  // nothing is said to a drop
      // (Values are whatever a server says; a push that it says is applied is.)
      const FrameHeader before = kept.header;
      const std::size_t length = kept.bytes.size();
      if (random() % 3 == 0) change(random, kept.bytes, kept.header);
      const bool same = before.kind == kept.header.kind && length == kept.bytes.size() &&
                        before.correlation == kept.header.correlation;
      ++(same ? right : spoilt);
      if (kept.header.kind >= kRowLimits.size() ||
          kept.bytes.size() > kRowLimits[kept.header.kind]) {
        return end();
      }
      const std::span<const std::byte> part(kept.bytes);
      connection->begin(kept.header, {&part, 1});
      connection->flush();
    } catch (const std::exception&) {
      end();
    }
  };
  rows = std::make_unique<RemoteRows>(RemotePlan{{{"a", 2, kRowsOfA}, {"b", 3, 0}},
                                                 {0, 1},
                                                 served.placement,
                                                 1,
                                                 1,
                                                 1,
                                                 9,
                                                 1,
                                                 1e6,
                                                 1e6,
                                                 0,
                                                 serve,
                                                 {std::nullopt, Pooling::max},
                                                 PooledAt::servers});
  auto batch = rows->make_batch();
  std::uint64_t ids[2][4];
  const IdColumn columns[] = {{ids[0]}, {ids[1]}};
  const std::size_t batches = fuzzed(100'000) / 100;
  for (std::size_t n = 0; n < batches; ++n) {
    for (auto& of : ids) {
      for (std::uint64_t& id : of) id = random() % kRowsOfA;
    }
    BatchView view{nullptr, {}, 4};
    view.columns = columns;
    rows->prefetch(0, view, *batch);
    rows->pull(0, view, *batch);
    CHECK(view.tables[0].count <= 4);
    rows->push(0, *batch, {});
  }
  rows->leave(0);
  const RemoteRows::Counters counters = rows->counters();
  CHECK(spoilt > 0);
  CHECK(right > 0);
  CHECK(counters.cuts >= spoilt / 2);
  CHECK(counters.pushes == batches);
  CHECK(counters.settled + counters.unsettled == batches);
}
