// What transfers take in virtual time. Workers and servers have a link each, which sends and
// receives at the same time, both at its bandwidth; who finds a link taken waits, first come, first
// served. Between two links lies a latency.
//
// Links cut through: a message's beginning is at the receiver's link while its end has still to
// leave the sender. So alone it takes the latency and bytes ÷ the smaller bandwidth, as a stream
// does; stored and forwarded it would take the sum of both. Of either link it takes bytes ÷ that
// link's bandwidth, from when its first byte is there: a fast link is not held up by a slow sender,
// and what has passed through a link is never more than its bandwidth allows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "leashed/base/choice.h"

namespace leashed {

class Network {
 public:
  using End = std::uint32_t;  // whose link: a worker's number, or `server`

  // "links": bandwidth (of workers', bytes/s; may be infinite), server_bandwidth, latency
  // (seconds); the table `slower`: what the first workers' bandwidths are divided by.
  Network(const Choice& choice, std::uint32_t workers, std::uint32_t servers);

  End server(std::uint32_t number) const { return workers_ + number; }

  // When the first byte of a message that is ready at `ns` is at the receiver's link. `receive` is
  // to be called at that moment, since messages may come there in another order.
  std::int64_t send(End from, std::uint64_t bytes, std::int64_t ns);
  // When all of it is there.
  std::int64_t receive(End from, End to, std::uint64_t bytes, std::int64_t ns);
  // When all of `ends` have the mean of what each has `bytes` of: two send each other theirs, more
  // sum over a ring, 2 (k − 1) steps of 1/k each. It begins when all their links are free.
  std::int64_t average(std::span<const End> ends, std::uint64_t bytes, std::int64_t ns);
  // What the end was sending and receiving is given up.
  void cut(End end, std::int64_t ns);

 private:
  struct Link {
    double bandwidth;
    std::int64_t sends_until = 0, receives_until = 0;

    std::int64_t time(std::uint64_t bytes) const;
  };

  const std::uint32_t workers_;
  std::int64_t latency_;
  std::vector<Link> links_;  // workers', then servers'
};

}  // namespace leashed
