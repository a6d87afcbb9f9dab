// θ and a rule's states whole, at the policy server that leads rounds of all-reduce where others
// have parts of them (cluster/led_rounds.h): as a member has sent them home, or as they are
// collected of all servers, for members that have none. It says what there is to ask, and sends
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/cluster/round_messages.h"
#include "leashed/cluster/told_log.h"

namespace leashed {

class LedReplica {
 public:
  // A StateHead's room, then the whole.
  using State = std::shared_ptr<const AlignedArray<float>>;

  // `shards` must stay.
  LedReplica(const ModeShards& shards, const Layout& whole) : shards_(shards), whole_(whole) {}

  std::size_t floats() const { return whole_.length(); }
  // Null: that version is not there.
  State of(std::uint64_t version) const { return state_ && version_ == version ? state_ : nullptr; }
  // A member has sent it.
  void came(std::uint64_t version, AlignedArray<float> state);
  // A server's part of what begins there.
  ToldLog::Part part(std::size_t server, const float* whole) const;

  // That version is to be collected, which all servers have at that position of the log, and the
  // first now, as `first`; false: it is being collected.
  bool collect(std::uint64_t version, std::uint64_t position, const float* first);
  // The position of which a server is to be asked for its part; nothing: it is not.
  std::optional<std::uint64_t> wanted(std::uint64_t server) const;
  // Where a server's part comes. Throws Error where it is none.
  std::span<std::byte> place(std::uint64_t server, std::size_t length);
  // It has come, of that position; whether all are there.
  bool came_of(std::uint64_t server, std::uint64_t position);

 private:
  struct Collected {
    std::uint64_t version, position;
    AlignedArray<float> state;
    std::vector<bool> there;  // by server
  };

  const ModeShards& shards_;
  const Layout whole_;
  State state_;
  std::uint64_t version_ = 0;
  std::optional<Collected> collected_;
  std::vector<AlignedArray<float>> coming_ = std::vector<AlignedArray<float>>(shards_.servers());
};

}  // namespace leashed
