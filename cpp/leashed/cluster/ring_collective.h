// The own ring, over connections with the member before and the one behind.
#pragma once

#include <cstdint>
#include <memory>

#include "leashed/cluster/collective.h"

namespace leashed {

class RingCollective final : public Collective {
 public:
  RingCollective(std::unique_ptr<Connection> previous, std::unique_ptr<Connection> next,
                 std::size_t rank, std::size_t members);

  void sum(std::span<float> values, const RingCodec& codec, const Deadline& deadline) override;
  void broadcast(std::span<float> values, std::size_t root, const Deadline& deadline) override;
  std::optional<bool> called() override;
  void count(WireCount& traffic) override {
    traffic.add(*next_, next_seen_);
    traffic.add(*previous_, previous_seen_);
  }

 private:
  const std::unique_ptr<Connection> previous_, next_;
  const RingPlace place_;
  WireCount::Seen next_seen_, previous_seen_;
  std::uint32_t round_ = 0;  // tells frames of one call from those of another
};

}  // namespace leashed
