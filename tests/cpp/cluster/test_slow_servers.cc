// A link that brings a few fragments until time is over: all come in turn, over one connection.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cluster/wires.h"
#include "leashed/base/clock.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"

using namespace leashed;

namespace {

using Vector = std::vector<float>;

constexpr std::size_t kFragments = 20, kDimension = (kFragments - 1) * kFragment + 7;
constexpr std::size_t kEach = 2;  // fragments that a slow link brings each time
constexpr std::size_t kAll = 1'000'000;

std::vector<SyncServer::Holding> holdings() {
  std::vector<SyncServer::Holding> all;
  for (std::uint32_t f = 0; f < kFragments; ++f) {
    const auto [begin, end] = fragment(f, kDimension);
    all.push_back({f, end - begin});
  }
  return all;
}

// Between a trainer and its server: passes on so many requests, each with its reply, and half of
// the reply to another, and then nothing until more are let through.
class SlowLink {
 public:
  // Takes both sockets over.
  SlowLink(int trainer, int server)
      : trainer_(trainer), server_(server), thread_([this] { serve(); }) {}
  ~SlowLink() {
    ended_ = true;
    for (const int socket : {trainer_, server_}) shutdown(socket, SHUT_RDWR);
    thread_.join();
    for (const int socket : {trainer_, server_}) close(socket);
  }
  void let_through(std::size_t requests) { left_ = requests; }
  // Whether all that was let through has gone.
  bool empty() const { return left_ == 0; }

 private:
  static bool read_all(int socket, std::byte* to, std::size_t bytes) {
    return bytes == 0 || recv(socket, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  static bool write_all(int socket, const std::byte* from, std::size_t bytes) {
    for (std::size_t sent = 0; sent < bytes;) {
      const ssize_t n = send(socket, from + sent, bytes - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<std::size_t>(n);
    }
    return true;
  }
  static bool read_frame(int socket, std::vector<std::byte>& frame) {
    frame.resize(kFrameHeader);
    std::uint64_t length = 0;
    if (!read_all(socket, frame.data(), kFrameHeader)) return false;
    std::memcpy(&length, frame.data() + 16, sizeof length);
    frame.resize(kFrameHeader + length);
    return read_all(socket, frame.data() + kFrameHeader, length);
  }
  // A request there and its reply into `reply`.
  bool ask() {
    return read_frame(trainer_, reply_) && write_all(server_, reply_.data(), reply_.size()) &&
           read_frame(server_, reply_);
  }
  void serve() {
    std::size_t gone = 0;  // of a reply that is halfway
    while (!ended_) {
      if (left_ == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      if (gone == 0 && !ask()) return;
      if (!write_all(trainer_, reply_.data() + gone, reply_.size() - gone)) return;
      gone = 0;
      if (left_ == 1) {
        if (!ask() || !write_all(trainer_, reply_.data(), reply_.size() / 2)) return;
        gone = reply_.size() / 2;
      }
      --left_;
    }
  }

  const int trainer_, server_;
  std::vector<std::byte> reply_;
  // Sequentially consistent: `left_` says that what it counted has been written.
  std::atomic<std::size_t> left_{0};
  std::atomic<bool> ended_{false};
  std::jthread thread_;
};

// A trainer's side, and theta.
struct Trainer {
  explicit Trainer(Codec codec = Codec::none, std::shared_ptr<Standings> standings = nullptr)
      : links(kDimension, std::vector<std::uint32_t>(kFragments), 1, 1, codec,
              std::move(standings)),
        theta(kDimension, 1.0f),
        came(kFragments) {}

  void connect(SyncServer& server) {
    const auto [here, there] = pair_of_sockets();
    links.adopt(0, here, false);
    server.adopt(there, false);
  }
  void connect_slowly(SyncServer& server) {
    const auto [here, at_trainer] = pair_of_sockets();
    const auto [at_server, there] = pair_of_sockets();
    links.adopt(0, here, true);
    server.adopt(there, true);
    link = std::make_unique<SlowLink>(at_trainer, at_server);
  }
  // Time is over at the second look after the link has nothing more: what has gone before a look
  // has come by the next. Whether all has come.
  bool exchange_slowly(std::size_t requests) {
    link->let_through(requests);
    Deadline deadline = Deadline::in(kLong);
    int looks = 0;
    const std::function<bool()> look = [&] {
      if (link->empty() && ++looks == 2) deadline.at = now();
      return true;
    };
    deadline.go_on = &look;
    return exchange(deadline);
  }
  bool exchange(const Deadline& deadline) {
    Covered done, first;
    if (!links.begin(0)) return false;
    const bool all = links.exchange(theta.data(), 0.5f, false, done, first, deadline);
    firsts = 0;
    for (std::uint32_t f = 0; f < kFragments; ++f) {
      const auto [begin, end] = fragment(f, kDimension);
      first.each(begin, end, [&](std::size_t, std::size_t) { ++firsts; });
      mix(done, begin, end, 0.5f, came[f]);
      mix(first, begin, end, 1, came[f]);
    }
    links.end();
    return all;
  }
  void mix(const Covered& where, std::size_t begin, std::size_t end, float alpha, int& count) {
    where.each(begin, end, [&](std::size_t from, std::size_t to) {
      CHECK((from == begin && to == end));
      ++count;
      for (; from < to; ++from) theta[from] += alpha * (links.other()[from] - theta[from]);
    });
  }
  int fewest() const { return *std::min_element(came.begin(), came.end()); }

  ServerLinks links;
  Vector theta;
  std::vector<int> came;  // how often each fragment has
  int firsts = 0;         // of the last exchange
  std::unique_ptr<SlowLink> link;
};

double distance(const Vector& a, const Vector& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  }
  return largest;
}

}  // namespace

TEST_CASE("behind a slow link all fragments come in turn, over a connection that stays") {
  for (const Codec codec : {Codec::none, Codec::bfloat16, Codec::int8}) {
    CAPTURE(static_cast<int>(codec));
    SyncServer server(holdings());
    const auto standings = std::make_shared<Standings>(1, kFragments);
    Trainer trainer(codec, standings);
    trainer.connect_slowly(server);
    constexpr int kTurn = kFragments / kEach;
    for (int round = 1; round <= 4 * kTurn; ++round) {
      CHECK_FALSE(trainer.exchange_slowly(kEach));
      CHECK(trainer.fewest() >= round / kTurn);
      for (const Standing& each : standings->fragments) CHECK(each.missed < kTurn);
      for (float& value : trainer.theta) value += 1;  // it trains
    }
    CHECK_FALSE(trainer.links.missing(0));
    CHECK(trainer.exchange_slowly(kAll));
    for (const Standing& each : standings->fragments) CHECK(each.missed == 0);
    // Both sides know of each other what they knew: they come together.
    for (int k = 0; k < 60; ++k) CHECK(trainer.exchange_slowly(kAll));
    CHECK(distance(trainer.theta, server.snapshot().values) < 1e-4);
    CHECK(server.counters().refused == 0);
    CHECK(server.counters().connections == 1);
  }
}

TEST_CASE("a server that has begun to answer and then never does is late") {
  SyncServer server(holdings());
  Trainer trainer;
  trainer.connect_slowly(server);
  CHECK_FALSE(trainer.exchange_slowly(kEach));
  CHECK_FALSE(trainer.links.missing(0));
  CHECK_FALSE(trainer.exchange_slowly(0));
  CHECK(trainer.links.missing(0));
  CHECK(trainer.fewest() == 0);
  // Over another connection all begins anew.
  trainer.connect(server);
  CHECK(trainer.exchange(Deadline::in(kLong)));
  CHECK(trainer.fewest() == 1);
}

TEST_CASE(
    "what was sent before another thread's first contact is no measure of what comes after it") {
  for (const Codec codec : {Codec::none, Codec::bfloat16, Codec::int8}) {
    CAPTURE(static_cast<int>(codec));
    SyncServer server(holdings());
    server.restore({Vector(kDimension, 9), std::vector<bool>(kFragments, true), 0});
    const auto standings = std::make_shared<Standings>(1, kFragments);
    Trainer slow(codec, standings), quick(codec, standings);
    slow.theta.assign(kDimension, 12345);
    slow.connect_slowly(server);
    quick.connect(server);
    CHECK_FALSE(slow.exchange_slowly(kEach));
    quick.theta = slow.theta;  // they are of one trainer
    CHECK(quick.exchange(Deadline::in(kLong)));
    slow.theta = quick.theta;
    for (int k = 0; k < 3; ++k) CHECK(slow.exchange_slowly(kAll));
    CHECK(server.snapshot().values == Vector(kDimension, 9));
    CHECK(slow.theta == Vector(kDimension, 9));
  }
}

TEST_CASE("a first contact that is slow is another thread's, who has it sooner") {
  SyncServer server(holdings());
  server.restore({Vector(kDimension, 9), std::vector<bool>(kFragments, true), 0});
  const auto standings = std::make_shared<Standings>(1, kFragments);
  Trainer slow(Codec::none, standings), quick(Codec::none, standings);
  slow.connect_slowly(server);
  quick.connect(server);
  CHECK_FALSE(slow.exchange_slowly(kEach));
  CHECK(slow.firsts == kEach);
  CHECK(quick.exchange(Deadline::in(kLong)));
  CHECK(quick.fewest() == 1);
  CHECK(quick.firsts == kFragments - kEach);
  for (std::size_t k = 0; k < kFragments; ++k) {
    slow.exchange_slowly(kEach);
    CHECK(slow.firsts == 0);  // though some has been on its way since then
  }
  CHECK(slow.fewest() >= 2);
}

TEST_CASE("what a server is given, and answers late or never, sets nothing back that is trained") {
  enum class Answer { late, lost, to_another_thread };
  for (const Codec codec : {Codec::none, Codec::bfloat16, Codec::int8}) {
    for (const Answer answer : {Answer::late, Answer::lost, Answer::to_another_thread}) {
      CAPTURE(static_cast<int>(codec));
      CAPTURE(static_cast<int>(answer));
      SyncServer server(holdings());  // has nothing
      const auto standings = std::make_shared<Standings>(1, kFragments);
      Trainer trainer(codec, standings), other(codec, standings);
      trainer.connect_slowly(server);
      CHECK_FALSE(trainer.exchange_slowly(kEach));
      if (answer == Answer::lost) trainer.connect(server);
      if (answer == Answer::to_another_thread) other.connect(server);
      Trainer& asks = answer == Answer::to_another_thread ? other : trainer;
      asks.theta.assign(kDimension, 3.0f);  // it has trained
      if (answer == Answer::late) asks.link->let_through(kAll);
      CHECK(asks.exchange(Deadline::in(kLong)));
      CHECK(asks.firsts == 0);
      const auto later = asks.theta.begin() + kEach * kFragment;
      CHECK(std::all_of(later, asks.theta.end(), [](float value) { return value == 3; }));
      CHECK(asks.exchange(Deadline::in(kLong)));
      CHECK(distance(asks.theta, Vector(kDimension, 3)) > 0.1);  // there it is mixed
    }
  }
}
