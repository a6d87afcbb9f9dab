// What a mode of training costs for each push and the pull after it, without any parameters:
// workers that overtake each other, and wait where the mode makes them wait.
//
//   bench_modes <seconds per figure>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "json_line.h"
#include "leashed/base/clock.h"
#include "leashed/policy/server_policy.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

const std::vector<Choice> kModes = {
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

double pushes_a_second(Choice choice, std::uint32_t workers, double seconds) {
  choice.settings.insert({{"workers", workers}, {"batch", 64}});
  ServerPolicy machine = make_server_policy(choice);
  Line line(workers);
  Out out;
  const auto tell = [&](const Event& event, std::int64_t now) {
    out.clear();
    on(machine, event, {now}, out);
    for (const Action& a : out.actions()) {
      if (a.kind == Action::Kind::grant) line.put({a.node, a.lease.ticket});
    }
  };
  for (Node node = 0; node < workers; ++node) tell({Event::Kind::pull, node}, 0);
  std::int64_t pushes = 0;
  const double start = thread_seconds();
  double spent = 0;
  while (spent < seconds) {
    for (int i = 0; i < 1000; ++i) {
      const Push push = line.take();
      ++pushes;
      tell({Event::Kind::push, push.node, push.ticket}, 100 * pushes);
      tell({Event::Kind::pull, push.node}, 100 * pushes);
    }
    spent = thread_seconds() - start;
  }
  return static_cast<double>(pushes) / spent;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.2;
  for (const Choice& mode : kModes) {
    for (const std::uint32_t workers : {8u, 3000u}) {
      const double rate = pushes_a_second(mode, workers, seconds);
      bench::JsonLine("modes")
          .add("mode", mode.name)
          .add("workers", workers)
          .add("pushes_per_second", rate)
          .add("ns_per_push", 1e9 / rate);
    }
  }
}
