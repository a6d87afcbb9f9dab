// What takes time between the workers of a mode and its servers: transfers, by what is drawn or
// over links that are queued for, and the servers' own queues.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "leashed/simulation/durations.h"
#include "leashed/simulation/network.h"
#include "leashed/simulation/played_mode.h"

namespace leashed {

class ModeTransfers {
 public:
  explicit ModeTransfers(PlayedMode& played);

  // When what is granted now is all there. Who does not hold anything sends nothing; where the
  // workers reduce, it is what their ring has summed.
  std::int64_t pulled(std::uint32_t worker);
  // Of several servers over links each sends its part as soon as it has granted it.
  bool by_parts() const { return network_ && played_.shards.size() > 1; }
  void give(std::uint32_t worker, std::size_t shard);
  // Its first byte is at the worker's link: when all of it is there.
  std::int64_t come(std::uint32_t worker, std::size_t shard);
  // Its push sets off at `due`, and arrives, part for part.
  void send(std::uint32_t worker, std::int64_t due);
  // A push's first byte is at the server's link.
  void reach(std::uint32_t worker, std::size_t shard);
  // A server carries out one push after the other; of several, each its part in its share of the
  // time. Without one each worker does its own.
  void arrive(std::uint32_t worker, std::size_t shard);
  // Where the workers reduce and a round has become an update, their ring begins now, whatever they
  // fetch meanwhile.
  void reduce();
  // When the nodes have each other's models.
  std::int64_t meet(std::span<const modes::Node> nodes);
  // A model, from one worker to another: when it is there.
  std::int64_t lend(std::uint32_t from, std::uint32_t to);
  // What a worker was sending and receiving is given up.
  void cut(std::uint32_t worker);

 private:
  std::int64_t reduced(std::uint32_t worker);
  // Every worker sends and receives 2 (k − 1)/k of a gradient, in as many steps.
  std::int64_t ring();
  std::uint64_t bytes() const;  // of a model
  std::uint64_t bytes_of(std::uint32_t worker, std::size_t shard) const;
  void send_parts(std::uint32_t worker, std::int64_t due);
  void send_over_links(std::uint32_t worker, std::int64_t due);
  std::int64_t share(std::int64_t time, std::size_t parameters) const;

  PlayedMode& played_;
  const std::unique_ptr<Durations> update_, transfer_;
  const bool served_;  // pushes go to a server
  std::optional<Network> network_;
  std::vector<std::int64_t> free_;  // when each server will be
  std::uint64_t reductions_ = 0;    // updates that rings have begun for
  std::int64_t reduced_ = 0;        // when the last ends
};

}  // namespace leashed
