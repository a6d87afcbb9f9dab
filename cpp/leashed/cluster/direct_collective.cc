#include "leashed/cluster/direct_collective.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "leashed/cluster/messages.h"
#include "leashed/server/weighted_mean.h"

namespace leashed {

// Its connections take what a ring's do.
static_assert(DirectReduce::kFragment == kRingFragment);

DirectCollective::DirectCollective(std::size_t rank,
                                   std::vector<std::unique_ptr<Connection>> connections)
    : rank_(rank),
      reduce_(rank, connections.size(), {.given = kReduce, .summed = kBroadcast}),
      all_(connections.size()) {
  std::iota(all_.begin(), all_.end(), 0);
  for (const std::size_t member : all_) {
    if (member != rank) reduce_.adopt(member, std::move(connections[member]));
  }
}

void DirectCollective::make(std::span<float> values, std::span<const std::size_t> members,
                            std::size_t giving, DirectReduce::Add add, const Deadline& deadline) {
  const auto givers = members.first(giving);
  const bool gives = std::ranges::find(givers, rank_) != givers.end();
  reduce_.begin({.epoch = ++round_,
                 .members = members,
                 .giving = giving,
                 .dimension = values.size(),
                 .add = std::move(add)},
                gives ? std::span<const float>(values) : std::span<const float>());
  while (!reduce_.step()) reduce_.wait(deadline);
  std::ranges::copy(reduce_.sum(), values.begin());
}

void DirectCollective::sum(std::span<float> values, const RingCodec& codec,
                           const Deadline& deadline) {
  if (codec.codec != Codec::none) throw Error("only the own ring has compression");
  WeightedMean mean;
  mean.begin(std::vector<double>(all_.size(), 1.0), 1);
  const auto add = [&mean](float* sum, std::span<const float* const> vectors, std::size_t begin,
                           std::size_t end) { mean.add(sum, vectors, begin, end); };
  make(values, all_, all_.size(), add, deadline);
}

void DirectCollective::broadcast(std::span<float> values, std::size_t root,
                                 const Deadline& deadline) {
  std::vector<std::size_t> members = all_;
  std::swap(members[0], members[root]);
  const auto copy = [](float* sum, std::span<const float* const> vectors, std::size_t begin,
                       std::size_t end) {
    std::copy(vectors[0] + begin, vectors[0] + end, sum + begin);
  };
  make(values, members, 1, copy, deadline);
}

}  // namespace leashed
