// First contacts in one thread, in seeded orders: sync servers come, go and come again, with what
// they had kept or empty, and are slow; trainers begin before and after them, exchange while others
// do, die, and come anew with parameters far from everybody's. A server's own thread does nothing
// but answer what it is handed, and is waited for.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "asked.h"
#include "cluster/replica.h"
#include "cluster/wires.h"
#include "leashed/cluster/round.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"
#include "sanitized.h"
#include "shortest.h"

using namespace leashed;

namespace {

using Random = std::mt19937_64;
using Vector = std::vector<float>;
using Contact = Standing::Contact;

// Each trainer's parameters when it begins, all alike, and by how much training moves them at once.
constexpr float kInitial[] = {0, 1e3f, -1e5f, 1e6f, -3e6f, 2e7f};
constexpr float kStep = 0.01f;
constexpr int kMostSteps = 200;  // of one schedule
constexpr double kSlack = kStep * kMostSteps + 4;
constexpr double kCoarse = 0.05;  // of the range, what int8 may be off

// What there may be of a fragment: between what the trainers had that have given a server without
// it theirs.
struct Bounds {
  double low = 0, high = 0;
  bool any = false;
  void add(double value) {
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
  }
  bool has(double value) const {
    const double slack = kSlack + kCoarse * (high - low);
    return any && value >= low - slack && value <= high + slack;
  }
};

// A trainer as those that it has written to know it, also when it is dead.
struct Life {
  float initial;
  std::vector<bool> answered;  // by fragment: what its server has was handed to it
  bool dead = false;
};

struct Happened {
  std::size_t late = 0;     // first contacts, after training began without
  std::size_t empty = 0;    // servers that came again without what they had
  std::size_t kept = 0;     // and with it
  std::size_t of_dead = 0;  // requests answered, whose trainer was dead
  std::size_t over = 0;     // exchanges that had no more time
  std::size_t between = 0;  // exchanges within another of the same trainer
  std::size_t spoilt = 0;   // servers without a fragment got that of one who came late
};

struct Host {
  std::vector<SyncServer::Holding> holdings;
  std::unique_ptr<SyncServer> server;  // null: away
  std::vector<bool> present;
  std::optional<SyncServer::Snapshot> kept;
};

bool read_all(int socket, std::byte* to, std::size_t bytes) {
  return bytes == 0 || recv(socket, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

bool write_all(int socket, const std::vector<std::byte>& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

std::size_t length_of(const std::vector<std::byte>& header) {
  std::uint64_t length = 0;
  std::memcpy(&length, header.data() + 16, sizeof length);
  return kFrameHeader + length;
}

// Between one thread of a trainer and a server: hands a request on, and its reply in pieces.
struct Wire {
  int trainer, server;  // this side's ends; -1: closed
  std::shared_ptr<Life> life;
  const void* thread;
  std::size_t host;
  std::vector<std::byte> request, reply;
  std::size_t handed = 0;  // of the reply
  std::uint32_t fragment = 0;

  bool open() const { return trainer >= 0; }
  void close_server() {
    if (server >= 0) close(server);
    server = -1;
  }
  void cut() {
    close_server();
    if (trainer >= 0) close(trainer);
    trainer = -1;
  }
};

struct Settings {
  std::size_t steps = kMostSteps / 2;  // until all is left to come to its end
};
const Lengths<Settings> kLengths = {{"steps", &Settings::steps, 0}};

class Play {
 public:
  Play(const Settings& settings, std::uint64_t seed, Happened& happened)
      : settings_(settings), random_(seed), happened_(happened) {
    const std::size_t what = below(10);
    dimension_ = what < 4 ? 5 : what < 8 ? kFragment + 5 : 2 * kFragment + 5;
    const std::size_t fragments = fragments_of(dimension_);
    hosts_.resize(1 + below(2));
    bounds_.resize(fragments);
    for (std::uint32_t f = 0; f < fragments; ++f) {
      owner_.push_back(static_cast<std::uint32_t>(below(hosts_.size())));
      const auto [begin, end] = fragment(f, dimension_);
      hosts_[owner_[f]].holdings.push_back({f, end - begin});
    }
    for (Host& host : hosts_) host.present.resize(fragments);
    parts_ = 1 + below(2);
    codec_ = static_cast<Codec>(below(kCodecs));
    leashed_ = happens(0.5);
    symmetric_ = happens(0.5);
    forgets_ = happens(0.3);
    over_ = happens(0.3) ? 0 : 0.15;
    threads_ = 1 + below(2);
    std::copy(std::begin(kInitial), std::end(kInitial), std::back_inserter(initials_));
    std::shuffle(initials_.begin(), initials_.end(), random_);
    trainers_.resize(2 + below(2));
  }
  ~Play() {
    for (Wire& wire : wires_) wire.cut();
  }

  void run() {
    for (std::size_t steps = 0; steps < settings_.steps; ++steps) {
      wires_.remove_if([](const Wire& wire) { return !wire.open(); });
      step(0);
    }
    calm_ = true;
    // All that is left is for all to have met.
    for (Host& host : hosts_) {
      if (!host.server) come(host);
    }
    for (auto& trainer : trainers_) {
      if (!trainer) begin(trainer);
      for (auto& thread : trainer->threads) {
        for (std::size_t host = 0; host < hosts_.size(); ++host) connect(*trainer, *thread, host);
      }
    }
    for (std::size_t turn = 0; turn < 3 * parts_; ++turn) {
      for (auto& trainer : trainers_) {
        for (auto& thread : trainer->threads) exchange(*trainer, *thread, 0);
      }
    }
    for (auto& trainer : trainers_) {
      for (const Standing& each : trainer->standings->fragments) {
        HOLDS(each.contact.load() == Contact::made);
      }
    }
    for (Host& host : hosts_) {
      look(host);
      HOLDS(host.server->counters().refused == 0);
    }
  }

 private:
  struct Thread {
    Thread(const Play& play, const std::shared_ptr<Standings>& standings, RoundCounters& counters)
        : links(play.dimension_, play.owner_, play.hosts_.size(), play.parts_, play.codec_,
                standings),
          round(make_synchroniser({"easgd", {{"alpha", 0.5}, {"symmetric", play.symmetric_}}}),
                &links, nullptr, play.none_, play.dimension_, counters) {}
    ServerLinks links;
    Round round;
    bool begun = false, exchanges = false;
  };
  struct Trainer {
    Trainer(const Play& play, float initial)
        : standings(std::make_shared<Standings>(play.hosts_.size(), play.owner_.size())),
          life(std::make_shared<Life>(Life{initial, std::vector<bool>(play.owner_.size()), false})),
          replica(
              Vector(play.dimension_, initial),
              play.leashed_ ? Choice{"leashed", {{"persistence", HUGE_VAL}}} : Choice{"locked"}) {
      for (std::size_t i = 0; i < play.threads_; ++i) {
        threads.push_back(std::make_unique<Thread>(play, standings, counters));
      }
    }
    std::shared_ptr<Standings> standings;
    std::shared_ptr<Life> life;
    Replica replica;
    RoundCounters counters;
    std::vector<std::unique_ptr<Thread>> threads;
    bool trained = false;
    std::size_t depth = 0;  // exchanges under way
  };

  std::size_t below(std::size_t n) { return random_() % n; }
  bool happens(double probability) {
    return std::uniform_real_distribution<double>()(random_) < probability;
  }

  // Something, anywhere. Within an exchange nobody dies whose exchange it is.
  void step(std::size_t depth) {
    auto& trainer = trainers_[below(trainers_.size())];
    if (!trainer) {
      if (happens(0.3)) begin(trainer);
      return;
    }
    Thread& thread = *trainer->threads[below(threads_)];
    const std::size_t index = below(hosts_.size());
    Host& host = hosts_[index];
    switch (below(10)) {
      case 0:
        return happens(0.5) ? come_or_go(index) : void();
      case 1:
        if (host.server && (happens(0.1) || !connected(thread, index))) {
          connect(*trainer, thread, index);
        }
        return;
      case 2:
        return train(*trainer);
      case 3: {
        if (trainer->depth > 0 || !happens(0.3)) return;
        trainer->life->dead = true;
        for (Wire& wire : wires_) {  // what it had sent is on its way
          if (wire.life == trainer->life) wire.thread = nullptr;
        }
        trainer.reset();
        return;
      }
      case 4:
        if (!wires_.empty()) pump(any_wire());
        return;
      case 5:
        if (!wires_.empty() && happens(0.1)) any_wire().cut();
        return;
      default:
        if (thread.exchanges || depth > 2) return;
        happened_.between += trainer->depth > 0;
        exchange(*trainer, thread, depth);
    }
  }

  Wire& any_wire() {
    return *std::next(wires_.begin(), static_cast<std::ptrdiff_t>(below(wires_.size())));
  }
  void begin(std::unique_ptr<Trainer>& trainer) {
    trainer = std::make_unique<Trainer>(*this, initials_[lives_++ % initials_.size()]);
  }

  void train(Trainer& trainer) {
    trainer.trained = true;
    trainer.replica.discipline().transform(0, dimension_,
                                           [](float* values, std::size_t begin, std::size_t end) {
                                             for (std::size_t i = begin; i < end; ++i)
                                               values[i - begin] += kStep;
                                           });
  }

  bool connected(const Thread& thread, std::size_t host) const {
    return std::any_of(wires_.begin(), wires_.end(), [&](const Wire& wire) {
      return wire.open() && wire.thread == &thread && wire.host == host;
    });
  }
  void connect(Trainer& trainer, Thread& thread, std::size_t host) {
    const auto [at_trainer, ours] = pair_of_sockets();
    const auto [other_ours, at_server] = pair_of_sockets();
    thread.links.adopt(host, at_trainer, happens(0.2));
    hosts_[host].server->adopt(at_server, happens(0.2));
    wires_.push_back({ours, other_ours, trainer.life, &thread, host, {}, {}, 0, 0});
  }

  void come_or_go(std::size_t index) {
    Host& host = hosts_[index];
    if (!host.server) return come(host);
    look(host);
    const bool goes = happens(0.5);
    if (happens(0.6) || (goes && !forgets_)) host.kept = host.server->snapshot();
    if (!goes) return;
    HOLDS(host.server->counters().refused == 0);
    host.server.reset();
    for (Wire& wire : wires_) {
      if (wire.host == index && wire.open()) {
        wire.close_server();
        if (wire.reply.empty() || happens(0.5)) wire.cut();
      }
    }
  }
  void come(Host& host) {
    host.server = std::make_unique<SyncServer>(host.holdings);
    if (host.kept && forgets_ && happens(0.5)) host.kept.reset();
    std::fill(host.present.begin(), host.present.end(), false);
    if (!host.kept) {
      ++happened_.empty;
      return;
    }
    ++happened_.kept;
    host.server->restore(*host.kept);
    for (std::size_t i = 0; i < host.holdings.size(); ++i) {
      host.present[host.holdings[i].fragment] = host.kept->present[i];
    }
  }
  // Nothing is in what a server has of those that came when it had it.
  void look(const Host& host) const {
    const SyncServer::Snapshot now = host.server->snapshot();
    auto value = now.values.begin();
    for (std::size_t i = 0; i < host.holdings.size(); ++i) {
      const auto [f, length] = host.holdings[i];
      const auto [low, high] =
          std::minmax_element(value, value + static_cast<std::ptrdiff_t>(length));
      value += static_cast<std::ptrdiff_t>(length);
      HOLDS(now.present[i] == host.present[f]);
      if (!now.present[i]) continue;
      HOLDS(bounds_[f].has(*low));
      HOLDS(bounds_[f].has(*high));
    }
  }

  void exchange(Trainer& trainer, Thread& thread, std::size_t depth) {
    thread.exchanges = true;
    ++trainer.depth;
    Deadline deadline = Deadline::in(kLong);
    const std::function<bool()> go_on = [&] {
      if (!serve(thread, depth)) {
        ++happened_.over;
        deadline.at = 0;
      }
      return true;
    };
    deadline.go_on = &go_on;
    const auto contacts = [&] {
      std::vector<bool> made;
      for (const Standing& each : trainer.standings->fragments) {
        made.push_back(each.contact.load() == Contact::made);
      }
      return made;
    };
    const std::vector<bool> before = contacts();
    if (thread.begun) {
      thread.round.run(trainer.replica.discipline(), deadline);
    } else {
      thread.round.begin(trainer.replica.discipline(), below(parts_), deadline);
    }
    thread.begun = true;
    --trainer.depth;
    thread.exchanges = false;
    const std::vector<bool> made = contacts();
    const Vector theta = trainer.replica.theta();
    for (std::size_t f = 0; f < made.size(); ++f) {
      const auto [begin, end] = fragment(f, dimension_);
      const auto [low, high] =
          std::minmax_element(theta.begin() + static_cast<std::ptrdiff_t>(begin),
                              theta.begin() + static_cast<std::ptrdiff_t>(end));
      happened_.late += trainer.trained && made[f] && !before[f];
      if (made[f]) {
        HOLDS(bounds_[f].has(*low));
        HOLDS(bounds_[f].has(*high));
      } else {
        HOLDS(*low >= trainer.life->initial - kSlack);
        HOLDS(*high <= trainer.life->initial + kSlack);
      }
    }
  }

  // Something for a thread that waits; false where its time is over.
  bool serve(const Thread& thread, std::size_t depth) {
    if (!calm_ && happens(over_)) return false;
    for (std::size_t tries = 0; tries < 20; ++tries) {
      if (!calm_ && happens(0.2)) step(depth + 1);
      for (Wire& wire : wires_) {
        if (wire.thread == &thread && wire.open() && (calm_ || happens(0.7)) && pump(wire))
          return true;
      }
    }
    return false;
  }

  // Whether its trainer has something to do.
  bool pump(Wire& wire) {
    if (!wire.open()) return false;
    if (wire.reply.empty()) {
      if (!receive(wire)) return true;
      if (wire.request.size() < kFrameHeader || wire.request.size() < length_of(wire.request)) {
        return read_;
      }
      if (!answer(wire)) {
        wire.cut();
        return true;
      }
    }
    const std::size_t left = wire.reply.size() - wire.handed;
    const std::size_t most = happens(0.7) ? left : 1 + below(left);
    const ssize_t n =
        ::send(wire.trainer, wire.reply.data() + wire.handed, most, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno != EAGAIN) wire.cut();
      return errno != EAGAIN;
    }
    wire.handed += static_cast<std::size_t>(n);
    if (wire.handed == wire.reply.size()) {
      wire.life->answered[wire.fragment] = true;
      wire.reply.clear();
      wire.handed = 0;
      if (wire.server < 0) wire.cut();
    }
    return true;
  }

  // False where it is closed.
  bool receive(Wire& wire) {
    read_ = false;
    for (;;) {
      const std::size_t have = wire.request.size();
      const std::size_t most = have < kFrameHeader ? kFrameHeader : length_of(wire.request);
      if (have == most) return true;
      wire.request.resize(most);
      const ssize_t n = recv(wire.trainer, wire.request.data() + have, most - have, MSG_DONTWAIT);
      wire.request.resize(have + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
      if (n < 0 && errno == EAGAIN) return true;
      if (n <= 0) {
        wire.cut();
        return false;
      }
      read_ = true;
    }
  }

  // Of the server; false where there is none.
  bool answer(Wire& wire) {
    if (wire.server < 0) return false;
    ExchangeHead head;
    std::memcpy(&head, wire.request.data() + kFrameHeader, sizeof head);
    const std::uint32_t f = wire.fragment = head.fragment;
    const bool first = head.alpha == 0;
    HOLDS(first || wire.life->answered[f]);
    Host& host = hosts_[wire.host];
    if (!host.present[f]) {
      if (first) {
        happened_.spoilt += bounds_[f].any;
        bounds_[f].add(wire.life->initial);
      }
      host.present[f] = true;
    }
    happened_.of_dead += wire.life->dead;
    if (!write_all(wire.server, wire.request)) return false;
    wire.request.clear();
    wire.reply.resize(kFrameHeader);
    if (!read_all(wire.server, wire.reply.data(), kFrameHeader)) return false;
    wire.reply.resize(length_of(wire.reply));
    return read_all(wire.server, wire.reply.data() + kFrameHeader,
                    wire.reply.size() - kFrameHeader);
  }

  const Settings settings_;
  Random random_;
  Happened& happened_;
  const CustomMix none_;
  std::size_t dimension_ = 0, parts_ = 1, threads_ = 1, lives_ = 0;
  Codec codec_ = Codec::none;
  bool leashed_ = false, symmetric_ = false, forgets_ = false, calm_ = false, read_ = false;
  double over_ = 0;
  Vector initials_;
  std::vector<std::uint32_t> owner_;
  std::vector<Bounds> bounds_;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::list<Wire> wires_;
};

const std::uint64_t kContactSchedules = sanitized() ? 50 : 2000;

}  // namespace

// LEASHED_SCHEDULES: how many.
TEST_CASE(
    "whenever and however servers and trainers come, what one is that comes late goes nowhere") {
  const std::uint64_t schedules = asked_for("LEASHED_SCHEDULES", kContactSchedules);
  Happened happened;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    CAPTURE(seed);
    hold(Settings{}, kLengths,
         [&](const Settings& settings) { Play(settings, seed, happened).run(); });
  }
  if (schedules < 500) return;  // some of it happens seldom
  for (const std::size_t count : {happened.late, happened.empty, happened.kept, happened.of_dead,
                                  happened.over, happened.between}) {
    CHECK(count > 0);
  }
}
