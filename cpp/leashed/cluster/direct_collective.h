// Sums over connections of all members with all (net/direct_reduce.h), in the order of their ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "leashed/cluster/collective.h"
#include "leashed/net/direct_reduce.h"

namespace leashed {

class DirectCollective final : public Collective {
 public:
  // The connections with all members, by rank; there is none with this one itself.
  DirectCollective(std::size_t rank, std::vector<std::unique_ptr<Connection>> connections);

  // As a server adds them up that has all of them. Throws Error with a codec.
  void sum(std::span<float> values, const RingCodec& codec, const Deadline& deadline) override;
  void broadcast(std::span<float> values, std::size_t root, const Deadline& deadline) override;
  std::optional<bool> called() override { return reduce_.called(); }
  void count(WireCount& traffic) override { reduce_.count(traffic); }

 private:
  // values ← what is made of those of the first `giving` members, in this order.
  void make(std::span<float> values, std::span<const std::size_t> members, std::size_t giving,
            DirectReduce::Add add, const Deadline& deadline);

  const std::size_t rank_;
  DirectReduce reduce_;
  std::vector<std::size_t> all_;
  std::uint64_t round_ = 0;
};

}  // namespace leashed
