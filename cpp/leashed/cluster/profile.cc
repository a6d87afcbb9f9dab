#include "leashed/cluster/profile.h"

#include <algorithm>
#include <array>
#include <future>
#include <vector>

#include "leashed/base/descriptor.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"

namespace leashed {
namespace {

constexpr std::size_t kTurns = 7, kExchanges = 16;  // the median of so many means
constexpr double kPatience = 10;                    // seconds for all of them

}  // namespace

double profile_exchange(int here, int there, Transport wish, std::size_t floats) {
  Descriptor client(here), serving(there);
  SyncServer server({{0, floats}});
  ServerLinks links(floats, {0}, 1, 1);
  // Both at once: each waits for the other to agree.
  auto adopted = std::async(std::launch::async, [&] {
    server.adopt(serving.get(), false, wish);
    serving.take();
  });
  links.adopt(0, client.get(), false, wish);
  client.take();
  adopted.get();
  const std::vector<float> theta(floats, 1.0f);
  std::vector<float> other(floats);
  const Deadline deadline = Deadline::in(kPatience);
  const auto exchange = [&] {
    for (std::size_t k = 0; k < kExchanges; ++k) {
      Covered done;
      links.exchange(theta.data(), 0.5f, false, 0, other.data(), done, deadline);
      if (done.empty()) throw Error("an exchange on this machine has failed, or takes too long");
    }
  };
  exchange();  // until memory and caches are as they will be
  std::array<double, kTurns> seconds{};
  for (double& mean : seconds) {
    const double before = server.counters().seconds;
    exchange();
    mean = (server.counters().seconds - before) / kExchanges;
  }
  std::nth_element(seconds.begin(), seconds.begin() + kTurns / 2, seconds.end());
  return seconds[kTurns / 2];
}

}  // namespace leashed
