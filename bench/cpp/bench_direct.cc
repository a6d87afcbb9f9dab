// All-reduce between processes, over the ring and over connections of all with all, in turns of
// some rounds: bench_direct MEMBERS BYTES TURNS tcp|shm. The first member prints medians.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "json_line.h"
#include "leashed/base/clock.h"
#include "leashed/net/direct_reduce.h"
#include "leashed/net/ring.h"
#include "leashed/net/share.h"
#include "leashed/server/weighted_mean.h"
#include "loopback.h"
#include "turns.h"

using namespace leashed;

namespace {

constexpr std::uint64_t kLimits[] = {kRingFragment, DirectReduce::kFragment};
constexpr DirectReduce::Kinds kKinds{.given = 0, .summed = 1};
constexpr int kRounds = 50;  // of a turn

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto members = static_cast<std::size_t>(std::atoi(argv[1]));
  const auto length = static_cast<std::size_t>(std::atoll(argv[2])) / sizeof(float);
  const int turns = std::atoi(argv[3]);
  const std::string_view transport = argv[4];
  struct Link {
    std::size_t from, to;
    std::pair<int, int> sockets;
  };
  std::vector<Link> links;  // of all with all, then around the ring
  for (std::size_t i = 0; i < members; ++i) {
    for (std::size_t j = i + 1; j < members; ++j) links.push_back({i, j, loopback()});
  }
  for (std::size_t i = 0; i < members; ++i) links.push_back({i, (i + 1) % members, loopback()});

  std::size_t rank = 0;
  for (std::size_t i = 1; i < members && rank == 0; ++i) {
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) rank = i;
  }
  const auto joined = [&](int socket, Role role) {
    auto connection = std::make_unique<Connection>(socket, kLimits, false);
    if (transport == "shm") {
      need(share(*connection, 0, role, Transport::shm, Deadline::in(60)), "share");
    }
    return connection;
  };
  DirectReduce reduce(rank, members, kKinds);
  std::unique_ptr<Connection> next, previous;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const auto& [from, to, sockets] = links[i];
    const auto adopt = [&](std::unique_ptr<Connection>& neighbour, std::size_t member, int socket,
                           Role role) {
      if (i + members >= links.size()) {
        neighbour = joined(socket, role);
      } else {
        reduce.adopt(member, joined(socket, role));
      }
    };
    from == rank ? adopt(next, to, sockets.first, Role::offers) : void(close(sockets.first));
    to == rank ? adopt(previous, from, sockets.second, Role::accepts) : void(close(sockets.second));
  }

  std::vector<float> data(length);
  std::vector<std::size_t> all(members);
  std::iota(all.begin(), all.end(), 0);
  WeightedMean mean;
  mean.begin(std::vector<double>(members, 1.0), static_cast<double>(members));
  std::uint32_t round = 0;
  std::uint64_t epoch = 0;
  const auto by_ring = [&] {
    all_reduce({*previous, *next, rank, members}, 0, round++, data, Deadline::in(60));
    return data.front() == static_cast<float>(members) && data.front() == data.back();
  };
  const auto direct = [&] {
    const auto add = [&mean](float* sum, std::span<const float* const> vectors, std::size_t begin,
                             std::size_t end) { mean.add(sum, vectors, begin, end); };
    reduce.begin(
        {.epoch = ++epoch, .members = all, .giving = members, .dimension = length, .add = add},
        data);
    while (!reduce.step()) reduce.wait(Deadline::in(60));
    return reduce.sum().front() == 1 && reduce.sum().back() == 1;
  };
  std::vector<double> ring_seconds, direct_seconds, ratios;
  double ring_used = 0, direct_used = 0;
  const auto turn = [&](const auto& sum, std::vector<double>& medians, double& used) {
    std::vector<double> seconds;
    const double before = bench::process_seconds();
    for (int i = 0; i < kRounds; ++i) {
      std::fill(data.begin(), data.end(), 1.0f);
      const double begin = now();
      if (!sum()) std::_Exit(3);
      seconds.push_back(now() - begin);
    }
    used += (bench::process_seconds() - before) / (turns * kRounds);
    medians.push_back(bench::median(seconds));
  };
  for (int i = 0; i < turns; ++i) {
    turn(by_ring, ring_seconds, ring_used);
    turn(direct, direct_seconds, direct_used);
    ratios.push_back(ring_seconds.back() / direct_seconds.back());
  }
  by_ring();  // nobody ends before all others have their sums
  if (rank > 0) std::_Exit(0);
  for (int status = 0; wait(&status) > 0;) {
    if (status != 0) return 3;
  }
  bench::JsonLine("direct")
      .add("transport", transport)
      .add("members", members)
      .add("bytes", length * sizeof(float))
      .add("ring_seconds", bench::median(ring_seconds))
      .add("seconds", bench::median(direct_seconds))
      .add("ratio", bench::median(ratios))
      .add("ring_processor_seconds", ring_used)
      .add("processor_seconds", direct_used);
  return 0;
}
