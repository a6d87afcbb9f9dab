// Embedding servers, trainers' threads and the wires between them in one thread, in a seeded order:
// frames come in pieces and late, wires are cut, servers are started again with what they had saved
// last, trainers die and come with another life. A trainer that waits lets the others go on.
//
// Each push has of each server a row that no other push has, so what was applied is known: that row
// is 1 then, and every other row how many applied pushes had it.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cluster/wires.h"
#include "leashed/base/error.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_service.h"
#include "shortest.h"

namespace leashed {

struct Standstill : std::runtime_error {
  Standstill() : std::runtime_error("nobody goes on") {}
};

class RowWorld {
 public:
  struct Settings {
    std::size_t servers = 2, clients = 2, look_ahead = 1, batches = 10, size = 8;
    std::uint64_t rows = 1200, hot = 12;
    std::size_t faults = 8;   // at most
    double fault = 0.01;      // of all that happens
    double between = 0.02;    // of pushes: cut before they are answered
    std::size_t piece = 100;  // bytes that go at once, at most
    bool restarts = true, deaths = true, bad = true, expire = true;
    bool pooled = false;  // rows are read as sums of bags, which servers make
  };
  struct Happened {
    std::size_t cuts = 0, between = 0, restarts = 0, deaths = 0, refused = 0, pushes = 0, bad = 0,
                lost = 0, expired = 0, again = 0, nested = 0;
  };

  RowWorld(const Settings& settings, std::uint64_t seed)
      : settings_(settings),
        random_(seed),
        placement_({{false, RowPlacement::kSpread}}, RowPlacement::evenly(settings.servers)),
        servers_(settings.servers),
        next_(settings.servers, settings.hot) {
    for (std::size_t s = 0; s < settings.servers; ++s) start(s);
    for (std::size_t c = 0; c < settings.clients; ++c) clients_.emplace_back().number = c;
    for (Client& client : clients_) live(client);
  }
  ~RowWorld() {
    clients_.clear();
    for (Link& link : links_) close_ends(link);
  }

  void run() {
    for (;;) {
      Client* const client = free_client();
      if (!client) break;
      go_on(*client);
      if (chance(0.5)) act();
    }
    faults_ = settings_.faults;
    for (Server& server : servers_) happened.again += server.service->counters().repeated;
  }

  void check() const {
    HOLDS(!stood_);
    std::vector<std::vector<std::uint64_t>> expected(servers_.size());
    for (auto& of : expected) of.assign(settings_.rows, 0);
    std::vector<std::uint64_t> applied(servers_.size());
    for (const Push& push : pushes_) {
      std::uint64_t sum = 0;
      for (std::size_t s = 0; s < servers_.size(); ++s) {
        const std::uint64_t there = updates(s, push.unique[s]);
        HOLDS(there <= (push.bad ? 0U : 1U));
        sum += there;
        applied[s] += there;
        for (const std::uint64_t id : push.ids[s]) expected[s][id] += there;
      }
      if (!push.ledger) continue;
      push.ledger->parts += sum;
      push.ledger->examples += sum * push.examples;
      push.ledger->pushed += push.bad ? 0 : servers_.size() * push.examples;
    }
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      for (std::uint64_t id = 0; id < settings_.rows; ++id) {
        HOLDS(placement_(0, id) != s || expected[s][id] == updates(s, id));
      }
      HOLDS(servers_[s].service->counters().pushes == applied[s]);
    }
    for (const Client& client : clients_) {
      const RemoteRows::Counters counters = client.counters;
      HOLDS(counters.unsettled == 0);
      HOLDS(counters.settled == servers_.size() * counters.pushes);
      const std::uint64_t told =
          counters.settled - counters.expired - counters.not_finite - counters.lost;
      HOLDS(client.ledger->parts <= told);
      // (Who pushes no more hears of no restart.)
      if (client.restarts != happened.restarts) continue;
      HOLDS(client.ledger->parts == told);
      if (counters.expired > 0) continue;  // of how many examples nobody counts
      HOLDS(client.ledger->examples == client.ledger->pushed - counters.lost_examples);
    }
  }

  Happened happened;

 private:
  static constexpr std::size_t kDim = 2;
  static constexpr std::size_t kMostWaits = 30'000;  // until a trainer is a step further

  struct Server {
    std::shared_ptr<Table> table;
    std::unique_ptr<RowService> service;
    // Of one moment.
    std::vector<std::uint64_t> saved;
    std::vector<RowService::Applied> applied;
    std::uint64_t pushes = 0;
  };
  struct Link {
    std::size_t server;
    Peer peer;
    int ends[2];                          // this side's: of the trainer's socket, of the server's
    std::vector<std::byte> under_way[2];  // from that end
    bool ended[2] = {};                   // nothing comes from there any more
    std::unique_ptr<Connection> connection;  // the server's
  };
  // Of a life's pushes, by check().
  struct Ledger {
    std::uint64_t parts = 0;     // that are applied
    std::uint64_t examples = 0;  // of these
    std::uint64_t pushed = 0;    // examples of all parts that might be
  };
  struct Push {
    std::vector<std::vector<std::uint64_t>> ids;  // by server, beside
    std::vector<std::uint64_t> unique;
    std::uint64_t examples = 0;
    bool bad = false;
    std::shared_ptr<Ledger> ledger;
  };
  struct Batch {
    std::unique_ptr<BatchRows> rows;
    std::vector<std::uint64_t> ids;
    std::vector<std::uint32_t> offsets;
    IdColumn column;
    BatchView view{};
    Push push;
  };
  struct Client {
    std::size_t number = 0;
    std::uint64_t life = 0;
    std::unique_ptr<RemoteRows> rows;
    std::vector<Batch> batches;
    std::size_t done = 0, filled = 0;
    bool pulled = false, busy = false, left = false;
    std::shared_ptr<Ledger> ledger;
    RemoteRows::Counters counters;
    std::size_t restarts = 0;  // of servers, before its last push
  };
  struct Answers final : Outbox {
    explicit Answers(Connection& to) : connection(to) {}
    void send(const FrameHeader& header, Connection::Parts parts) override {
      connection.begin(header, parts);
    }
    Connection& connection;
  };

  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }
  std::size_t one_of(std::size_t n) { return random_() % n; }

  std::uint64_t updates(std::size_t s, std::uint64_t id) const {
    float values[kDim];
    std::uint32_t version = 0;
    servers_[s].table->lookup(&id, 1, values, &version);
    version /= RowHead::kUpdate;
    HOLDS(values[0] == static_cast<float>(version));  // it has been updated by ones
    return version;
  }

  void start(std::size_t s) {
    Server& server = servers_[s];
    for (Link& link : links_) {
      if (link.server == s) cut(link);
    }
    sweep_away();
    server.service.reset();
    server.table = std::make_shared<Table>(Table::Settings{.name = "a",
                                                           .dim = kDim,
                                                           .rows = settings_.rows,
                                                           .initial = {"zeros"},
                                                           .rule = {"sgd", {{"lr", 1}}},
                                                           .staleness = {"none"},
                                                           .shards = placement_.shards(0, s)});
    const float gradient[kDim] = {-1, -1};
    for (std::uint64_t id = 0; id < server.saved.size(); ++id) {
      for (std::uint64_t n = 0; n < server.saved[id]; ++n) {
        server.table->update(&id, 1, gradient, nullptr);
      }
    }
    server.service = std::make_unique<RowService>(
        std::vector{server.table}, std::vector<std::size_t>{0}, placement_, s, ++boots_);
    server.service->restore(server.applied, server.pushes);
  }
  void save(std::size_t s) {
    Server& server = servers_[s];
    server.saved.assign(settings_.rows, 0);
    for (std::uint64_t id = 0; id < settings_.rows; ++id) {
      if (placement_(0, id) == s) server.saved[id] = updates(s, id);
    }
    server.applied = server.service->applied();
    server.pushes = server.service->counters().pushes;
  }

  void live(Client& client) {
    client.rows = std::make_unique<RemoteRows>(
        RemotePlan{{{"a", kDim, settings_.rows}},
                   {0},
                   placement_,
                   settings_.servers,
                   1,
                   1,
                   1000 * client.number,
                   ++lives_,
                   1e6,
                   1e6,
                   settings_.look_ahead,
                   [this] { idle(); },
                   {Pooling::sum},
                   settings_.pooled ? PooledAt::servers : PooledAt::rows});
    client.batches = std::vector<Batch>(client.rows->ahead() + 1);
    for (Batch& batch : client.batches) batch.rows = client.rows->make_batch();
    client.done = client.filled = 0;
    client.pulled = false;
    client.ledger = std::make_shared<Ledger>();
  }
  Client* free_client() {
    std::vector<Client*> free;
    for (Client& client : clients_) {
      if (!client.busy && !client.left) free.push_back(&client);
    }
    return free.empty() ? nullptr : free[one_of(free.size())];
  }

  void fill(Client& client) {
    Batch& batch = client.batches[client.filled++ % client.batches.size()];
    batch.push = {
        std::vector<std::vector<std::uint64_t>>(servers_.size()), {}, 0, false, client.ledger};
    batch.ids.clear();
    for (std::size_t s = 0; s < servers_.size(); ++s) {
      std::uint64_t& next = next_[s];
      while (placement_(0, next) != s) ++next;
      HOLDS(next < settings_.rows);
      batch.push.unique.push_back(next);
      batch.ids.push_back(next++);
    }
    while (batch.ids.size() < settings_.size) batch.ids.push_back(one_of(settings_.hot));
    auto once = batch.ids;
    std::ranges::sort(once);
    once.erase(std::ranges::unique(once).begin(), once.end());
    if (settings_.pooled) batch.ids = once;  // of an id that is twice the gradient would be
    std::ranges::shuffle(batch.ids, random_);
    batch.offsets.clear();
    if (settings_.pooled) {
      batch.offsets.push_back(0);
      while (batch.offsets.back() < batch.ids.size()) {
        const std::size_t left = batch.ids.size() - batch.offsets.back();
        batch.offsets.push_back(batch.offsets.back() + static_cast<std::uint32_t>(one_of(
                                                           std::min<std::size_t>(left, 5) + 1)));
      }
    }
    batch.column = {batch.ids.data(), settings_.pooled ? batch.offsets.data() : nullptr};
    batch.view = {nullptr, {}, settings_.pooled ? batch.offsets.size() - 1 : batch.ids.size()};
    batch.view.columns = {&batch.column, 1};
    batch.push.examples = batch.view.size;
    client.rows->prefetch(0, batch.view, *batch.rows);
    for (const std::uint64_t id : once) batch.push.ids[placement_(0, id)].push_back(id);
  }
  // What the trainer does next.
  void go_on(Client& client) {
    client.busy = true;
    const bool more = client.filled < settings_.batches;
    if (client.done == client.filled && !more) {
      client.rows->leave(0);
      client.counters = client.rows->counters();
      happened.lost += client.counters.lost;
      happened.expired += client.counters.expired;
      client.left = true;
    } else if (more && client.filled < client.done + client.batches.size()) {
      fill(client);
    } else if (Batch& batch = client.batches[client.done % client.batches.size()]; !client.pulled) {
      client.rows->pull(0, batch.view, *batch.rows);
      client.pulled = true;
    } else if (chance(0.05)) {
      client.rows->drop(0, *batch.rows);
      ++client.done;
      client.pulled = false;
    } else {
      batch.push.bad = settings_.bad && chance(0.03);
      const float gradient = batch.push.bad ? std::numeric_limits<float>::quiet_NaN() : -1.0f;
      const TableRows& table = batch.view.tables[0];
      std::fill_n(table.gradient, table.count * table.stride, gradient);
      pushes_.push_back(batch.push);
      client.restarts = happened.restarts;
      client.rows->push(0, *batch.rows, {});
      ++happened.pushes;
      happened.bad += batch.push.bad ? 1 : 0;
      ++client.done;
      client.pulled = false;
    }
    client.busy = false;
    waited_ = 0;
  }

  // A trainer has nothing to do but wait.
  void idle() {
    if (++waited_ > kMostWaits) {
      stood_ = true;
      throw Standstill();
    }
    for (int i = 0; i < 3; ++i) {
      if (act()) {
        still_ = 0;
        return;
      }
    }
    if (++still_ < 50) return;
    bool moved = false;  // whoever can goes on
    for (Link& link : links_) moved |= go_on(link);
    sweep_away();
    moved |= connect();
    if (moved) {
      still_ = 0;
    } else if (still_ > 60) {
      stood_ = true;
      throw Standstill();
    }
  }
  // Something that may happen; whether it did.
  bool act() {
    if (faults_ < settings_.faults && chance(settings_.fault)) {
      ++faults_;
      fault();
      return true;
    }
    if (chance(0.02)) {
      save(one_of(servers_.size()));
      return false;
    }
    if (chance(0.1)) {
      if (Client* const client = free_client()) {
        ++happened.nested;
        go_on(*client);
        return true;
      }
    }
    if (links_.empty() || chance(0.2)) return connect();
    auto link = links_.begin();
    std::advance(link, one_of(links_.size()));
    const bool moved = go_on(*link);
    sweep_away();
    return moved;
  }
  void fault() {
    const std::size_t which = one_of(4);
    if (which == 0 && settings_.restarts) {
      ++happened.restarts;
      return start(one_of(servers_.size()));
    }
    if (which == 1 && settings_.deaths) {
      if (Client* const client = free_client()) {
        ++happened.deaths;
        return live(*client);
      }
    }
    if (which == 2 && settings_.expire) return servers_[one_of(servers_.size())].service->expire();
    if (links_.empty()) return;
    auto link = links_.begin();
    std::advance(link, one_of(links_.size()));
    ++happened.cuts;
    cut(*link);
    sweep_away();
  }

  bool connect() {
    bool made = false;
    for (Client& client : clients_) {
      for (std::size_t s = 0; s < servers_.size() && !client.left; ++s) {
        if (!client.rows->missing(0, s)) continue;
        made = true;
        const auto [theirs, here] = pair_of_sockets();
        const auto [served, there] = pair_of_sockets();
        const int least = 1;
        for (const int socket : {theirs, here, served, there}) {
          setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
          setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
        }
        client.rows->adopt(0, s, theirs, true, Transport::tcp, 0);
        Link& link = links_.emplace_back(Link{s, ++peers_, {here, there}, {}, {}, nullptr});
        link.connection = connected(served, kRowLimits, true, Transport::tcp, Role::accepts);
        servers_[s].service->come(link.peer);
      }
    }
    return made;
  }
  bool go_on(Link& link) {
    if (!link.connection) return false;
    switch (one_of(3)) {
      case 0:
        return hand_on(link, 0) || hand_on(link, 1) || serve(link);
      case 1:
        return serve(link) || hand_on(link, 0) || hand_on(link, 1);
      default:
        return hand_on(link, 1) || serve(link) || hand_on(link, 0);
    }
  }
  bool hand_on(Link& link, int from) {
    if (!link.connection) return false;
    auto& bytes = link.under_way[from];
    bool moved = false;
    const std::size_t piece = 1 + one_of(settings_.piece);
    if (bytes.size() < 2 * settings_.piece && !link.ended[from]) {
      const std::size_t before = bytes.size();
      bytes.resize(before + piece);
      const ssize_t n = recv(link.ends[from], bytes.data() + before, piece, MSG_DONTWAIT);
      bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
      link.ended[from] = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
      moved = n > 0;
    }
    if (!bytes.empty()) {
      const ssize_t n = send(link.ends[1 - from], bytes.data(), std::min(bytes.size(), piece),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) bytes.erase(bytes.begin(), bytes.begin() + n);
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) cut(link);
      moved = moved || n > 0;
    } else if (link.ended[from]) {
      cut(link);
      return true;
    }
    return moved;
  }
  bool serve(Link& link) {
    if (!link.connection) return false;
    RowService& service = *servers_[link.server].service;
    try {
      if (link.connection->sending()) {
        const std::uint64_t before = link.connection->sent();
        return link.connection->flush() || link.connection->sent() != before;
      }
      const std::uint64_t before = link.connection->received();
      const auto header = link.connection->take(
          [&](const FrameHeader& what) { return service.place(link.peer, what); });
      if (!header) return link.connection->received() != before;
      Answers answers(*link.connection);
      service.frame(link.peer, *header, answers);
      if (header->kind == kPushRows && chance(settings_.between)) {
        ++happened.between;
        cut(link);
      }
      return true;
    } catch (const ConnectionError&) {
      cut(link);
    } catch (const Error&) {
      ++happened.refused;
      cut(link);
    }
    return true;
  }
  void cut(Link& link) {
    if (!link.connection) return;
    servers_[link.server].service->gone(link.peer);
    link.connection.reset();
  }
  void sweep_away() {
    std::erase_if(links_, [](Link& link) {
      if (link.connection) return false;
      close_ends(link);
      return true;
    });
  }
  static void close_ends(const Link& link) {
    for (const int end : link.ends) close(end);
  }

  const Settings settings_;
  std::mt19937_64 random_;
  const RowPlacement placement_;
  std::vector<Server> servers_;
  std::list<Client> clients_;
  std::list<Link> links_;
  std::vector<Push> pushes_;
  std::vector<std::uint64_t> next_;  // by server: an id that no push has had
  std::uint64_t boots_ = 0, lives_ = 0;
  Peer peers_ = 0;
  std::size_t faults_ = 0, still_ = 0, waited_ = 0;
  bool stood_ = false;
};

}  // namespace leashed
