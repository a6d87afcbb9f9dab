#include "leashed/cluster/profile.h"

#include <algorithm>
#include <array>
#include <future>
#include <vector>

#include "leashed/base/descriptor.h"
#include "leashed/cluster/messages.h"
#include "leashed/cluster/sync_server.h"

namespace leashed {
namespace {

// The median of so many means.
constexpr std::size_t kTurns = 15, kExchanges = 32;
// So many are asked for ahead, as trainers do, so that falling asleep and waking is no part of
// each.
constexpr std::size_t kAhead = 8;
constexpr double kPatience = 60;  // seconds for all of them

// Exchanges of fragment 0, with that connection's server.
void exchange(Connection& connection, std::span<const float> theta, const Deadline& deadline) {
  const ExchangeHead head{.fragment = 0, .alpha = 0.5f, .old_reply = 0};
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&head, 1)),
                                              std::as_bytes(theta)};
  std::vector<std::byte> reply(theta.size_bytes());
  const auto place = [&reply](const FrameHeader& header) {
    if (header.length != reply.size()) throw Error("a sync server has answered something else");
    return std::span(reply);
  };
  for (std::size_t sent = 0, received = 0; received < kExchanges;) {
    while (connection.flush() && sent < std::min(kExchanges, received + kAhead)) {
      connection.begin({.kind = kExchange, .correlation = sent++}, parts);
    }
    if (connection.take(place)) {
      ++received;
    } else {
      connection.wait(true, connection.sending(), deadline);
    }
  }
}

}  // namespace

double profile_exchange(int here, int there, Transport wish, std::size_t floats) {
  Descriptor client(here), serving(there);
  SyncServer server({{0, floats}});
  // Both at once: each waits for the other to agree.
  auto adopted = std::async(std::launch::async, [&] {
    server.adopt(serving.get(), false, wish);
    serving.take();
  });
  const auto connection = connected(client.get(), kServerLimits, false, wish, Role::offers);
  client.take();
  adopted.get();
  const std::vector<float> theta(floats, 1.0f);
  const Deadline deadline = Deadline::in(kPatience);
  exchange(*connection, theta, deadline);  // until memory and caches are as they will be
  // The median: what the server's thread spins before a turn is taken off its seconds within it.
  std::array<double, kTurns> costs;
  for (double& cost : costs) {
    const double before = server.counters().seconds;
    exchange(*connection, theta, deadline);
    cost = (server.counters().seconds - before) / kExchanges;
  }
  std::nth_element(costs.begin(), costs.begin() + kTurns / 2, costs.end());
  return costs[kTurns / 2];
}

}  // namespace leashed
