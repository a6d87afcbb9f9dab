// What a mode of training costs for each push and the pull after it: what it decides, without any
// parameters, and a push of 1 kB with all that is done about it, under a lock and with the time of
// every event, as threads do it (modes/policy_threads.h). Workers overtake each other, and wait
// where the mode makes them wait; one thread plays them all.
//
//   bench_modes <seconds per figure>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "json_line.h"
#include "leashed/base/clock.h"
#include "leashed/policy/server_policy.h"
#include "leashed/server/parameter_server.h"
#include "leashed/update/registry.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

const std::vector<Choice> kChoices = {
    {"sync"},
    {"bsp"},
    {"asp"},
    {"ssp", {{"s", 3}}},
    {"dssp", {{"lower", 3}, {"upper", 15}}},
    {"hop_bw", {{"b3", 1}}},
    {"easgd", {{"alpha", 0.5}}},
    {"gba"},
    {"automatic", {{"window_ns", 1e6}}},
    {"shat"},
    {"swarm", {{"h", 1}}},
    {"d_psgd"},
    {"prague"},
};

struct Push {
  Node node;
  std::uint64_t ticket;
};

// Who was granted a batch first pushes first, but for one in eight, who is overtaken by all.
class Line {
 public:
  explicit Line(std::uint32_t workers) : due_(workers) {}
  void put(Push push) {
    due_[(first_ + size_) % due_.size()] = push;
    ++size_;
  }
  Push take() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    if (random_ >> 61 == 0) put(next());
    return next();
  }

 private:
  Push next() {
    const Push push = due_[first_];
    first_ = (first_ + 1) % due_.size();
    --size_;
    return push;
  }

  std::vector<Push> due_;
  std::size_t first_ = 0, size_ = 0;
  std::uint64_t random_ = 0;
};

// Calls per second of this thread's own clock.
template <class F>
double rate_of(double seconds, F&& call) {
  std::int64_t calls = 0;
  const double start = thread_seconds();
  double spent = 0;
  while (spent < seconds) {
    for (int i = 0; i < 1000; ++i) call();
    calls += 1000;
    spent = thread_seconds() - start;
  }
  return static_cast<double>(calls) / spent;
}

ServerPolicy machine_of(Choice choice, std::uint32_t workers) {
  choice.settings.insert({{"workers", workers}, {"batch", 64}});
  return make_server_policy(choice);
}

double decisions_a_second(const Choice& choice, std::uint32_t workers, double seconds) {
  ServerPolicy machine = machine_of(choice, workers);
  Line line(workers);
  Out out;
  const auto tell = [&](const Event& event, std::int64_t now) {
    out.clear();
    machine.on(event, {now}, out);
    for (const Action& a : out.actions()) {
      if (a.kind == Action::Kind::grant) line.put({a.node, a.lease.ticket});
    }
  };
  for (Node node = 0; node < workers; ++node) tell({Event::Kind::pull, node}, 0);
  std::int64_t pushes = 0;
  return rate_of(seconds, [&] {
    const Push push = line.take();
    ++pushes;
    tell({Event::Kind::push, push.node, push.ticket}, 100 * pushes);
    tell({Event::Kind::pull, push.node}, 100 * pushes);
  });
}

class Server final : Sink {
 public:
  Server(const Choice& choice, std::uint32_t workers)
      : server_(machine_of(choice, workers), context_of(workers)), seats_(workers), line_(workers) {
    for (Seat& seat : seats_) seat.gradient = AlignedArray<float>(kFloats);
    for (Node node = 0; node < workers; ++node) tell({Event::Kind::pull, node}, nullptr);
  }

  void push() {
    const Push push = line_.take();
    Seat& seat = seats_[push.node];
    // As a worker does, since its memory may be new; the cost of writing 1 kB is with the push.
    std::fill_n(seat.gradient.data(), kFloats, 1e-3f);
    const Payload payload{&seat.gradient, seat.granted.lease.count};
    seat.granted.pulled.release();
    const std::lock_guard lock(mutex_);
    tell({Event::Kind::push, push.node, push.ticket, seat.granted.version}, &payload);
    tell({Event::Kind::pull, push.node}, nullptr);
  }

 private:
  static constexpr std::size_t kFloats = 256;

  struct Seat {
    AlignedArray<float> gradient;
    Grant granted;
  };

  DisciplineContext context_of(std::size_t workers) const {
    return {initial_.data(), kFloats, workers, 1, *rule_};
  }
  void tell(const Event& event, const Payload* payload) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    server_.handle(event, payload, {std::chrono::nanoseconds(now).count()}, *this);
  }

  void grant(Grant grant) override {
    Seat& seat = seats_[grant.node];
    seat.granted = std::move(grant);
    line_.put({seat.granted.node, seat.granted.lease.ticket});
  }
  void wake(Time) override {}
  void meet(std::span<const Node>, Node) override {}
  void end(Node) override {}
  void settled(Node, const Publication&) override {}

  const std::vector<float> initial_ = std::vector<float>(kFloats);
  const std::unique_ptr<const Rule> rule_ = make_rule({"sgd", {{"lr", 1e-3}}});
  std::mutex mutex_;
  ParameterServer server_;
  std::vector<Seat> seats_;  // which hold versions of the server's
  Line line_;
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.2;
  for (const Choice& mode : kChoices) {
    for (const std::uint32_t workers : {8u, 3000u}) {
      bench::JsonLine("decision")
          .add("mode", mode.name)
          .add("workers", workers)
          .add("rate", decisions_a_second(mode, workers, seconds));
    }
  }
  for (const char* const mode : {"asp", "sync", "gba"}) {
    constexpr std::uint32_t kWorkers = 8;
    Server server({mode}, kWorkers);
    bench::JsonLine("push")
        .add("mode", mode)
        .add("workers", kWorkers)
        .add("rate", rate_of(seconds, [&] { server.push(); }));
  }
}
