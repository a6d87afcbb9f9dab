#include "leashed/simulation/network.h"

#include <algorithm>
#include <cmath>

#include "leashed/base/error.h"
#include "leashed/simulation/virtual_clock.h"

namespace leashed {

Network::Network(const Choice& choice, std::uint32_t workers, std::uint32_t servers)
    : workers_(workers), latency_(in_ns(choice["latency"])) {
  if (choice.name != "links") throw Error("a network must be 'links', not '" + choice.name + "'");
  links_.resize(workers, {choice["bandwidth"]});
  links_.resize(std::size_t{workers} + servers, {choice["server_bandwidth"]});
  const auto slower = choice.tables.find("slower");
  if (slower == choice.tables.end()) return;
  const std::size_t given = std::min<std::size_t>(workers, slower->second.size());
  for (std::size_t w = 0; w < given; ++w) links_[w].bandwidth /= slower->second[w];
}

std::int64_t Network::Link::time(std::uint64_t bytes) const {
  return in_ns(static_cast<double>(bytes) / bandwidth);
}

std::int64_t Network::send(End from, std::uint64_t bytes, std::int64_t ns) {
  Link& link = links_[from];
  const std::int64_t begin = std::max(ns, link.sends_until);
  link.sends_until = after(begin, link.time(bytes));
  return after(begin, latency_);
}

std::int64_t Network::receive(End from, End to, std::uint64_t bytes, std::int64_t ns) {
  Link& link = links_[to];
  link.receives_until = after(std::max(ns, link.receives_until), link.time(bytes));
  return std::max(link.receives_until, after(ns, links_[from].time(bytes)));
}

std::int64_t Network::average(std::span<const End> ends, std::uint64_t bytes, std::int64_t ns) {
  std::int64_t done = ns;
  double slowest = links_[ends[0]].bandwidth;
  for (const End end : ends) {
    done = std::max({done, links_[end].sends_until, links_[end].receives_until});
    slowest = std::min(slowest, links_[end].bandwidth);
  }
  const auto k = static_cast<double>(ends.size());
  const double steps = ends.size() == 2 ? 1 : 2 * (k - 1), parts = ends.size() == 2 ? 1 : k;
  const double seconds = static_cast<double>(bytes) / parts / slowest + in_seconds(latency_);
  done = after(done, in_ns(steps * seconds));
  for (const End end : ends) links_[end].sends_until = links_[end].receives_until = done;
  return done;
}

void Network::cut(End end, std::int64_t ns) {
  Link& link = links_[end];
  link.sends_until = std::min(link.sends_until, ns);
  link.receives_until = std::min(link.receives_until, ns);
}

}  // namespace leashed
