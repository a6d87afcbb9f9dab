// All-reduce between processes over TCP loopback, or through shared memory:
// bench_ring MEMBERS BYTES ROUNDS tcp|shm. The first member prints the median time of a round.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/net/ring.h"
#include "leashed/net/share.h"
#include "loopback.h"

using namespace leashed;

namespace {

constexpr std::uint64_t kLimits[] = {kRingFragment};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto members = static_cast<std::size_t>(std::atoi(argv[1]));
  const auto length = static_cast<std::size_t>(std::atoll(argv[2])) / sizeof(float);
  const int rounds = std::atoi(argv[3]);
  std::vector<std::pair<int, int>> links;  // from i to i + 1
  for (std::size_t i = 0; i < members; ++i) links.push_back(loopback());
  std::size_t rank = 0;
  for (std::size_t i = 1; i < members && rank == 0; ++i) {
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) rank = i;
  }
  const std::size_t before = (rank + members - 1) % members;
  for (std::size_t i = 0; i < members; ++i) {
    if (i != rank) close(links[i].first);
    if (i != before) close(links[i].second);
  }
  Connection next(links[rank].first, kLimits, false);
  Connection previous(links[before].second, kLimits, false);
  if (argv[4] == std::string_view("shm")) {
    // One begins, or each would wait for the one before it.
    const auto share_with = [](Connection& other, Role role) {
      need(share(other, 0, role, Transport::shm, Deadline::in(60)), "share");
    };
    if (rank == 0) share_with(next, Role::offers);
    share_with(previous, Role::accepts);
    if (rank > 0) share_with(next, Role::offers);
  }
  std::vector<float> data(length, 1.0f);
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const double begin = now();
    all_reduce({previous, next, rank, members}, 0, static_cast<std::uint32_t>(round), data,
               Deadline::in(60));
    seconds.push_back(now() - begin);
    if (data.front() != static_cast<float>(members) || data.back() != data.front()) return 3;
    std::fill(data.begin(), data.end(), 1.0f);
  }
  if (rank > 0) std::_Exit(0);
  for (int status = 0; wait(&status) > 0;) {
    if (status != 0) return 3;
  }
  seconds.erase(seconds.begin(),
                seconds.begin() + std::min(2, rounds - 1));  // memory's first touch
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2),
                   seconds.end());
  std::printf("{\"seconds\": %g}\n", seconds[seconds.size() / 2]);
  return 0;
}
