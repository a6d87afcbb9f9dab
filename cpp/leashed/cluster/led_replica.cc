#include "leashed/cluster/led_replica.h"

#include <algorithm>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {

void LedReplica::came(std::uint64_t version, AlignedArray<float> state) {
  state_ = std::make_shared<const AlignedArray<float>>(std::move(state));
  version_ = version;
  collected_.reset();
}

ToldLog::Part LedReplica::part(std::size_t server, const float* whole) const {
  auto part = std::make_shared<AlignedArray<float>>(shards_.part_of(server, whole_).length());
  shards_.gather(server, whole_, whole, part->data());
  return part;
}

bool LedReplica::collect(std::uint64_t version, std::uint64_t position, const float* first) {
  if (collected_ && collected_->version == version) return false;
  collected_.emplace(Collected{version, position, AlignedArray<float>(kStateFloats + floats()),
                               std::vector<bool>(shards_.servers())});
  std::fill_n(collected_->state.data(), collected_->state.size(), 0.0f);
  shards_.scatter(0, whole_, first, collected_->state.data() + kStateFloats);
  collected_->there[0] = true;
  return true;
}

std::optional<std::uint64_t> LedReplica::wanted(std::uint64_t server) const {
  if (!collected_ || collected_->there[server]) return std::nullopt;
  return collected_->position;
}

std::span<std::byte> LedReplica::place(std::uint64_t server, std::size_t length) {
  const std::size_t floats = shards_.part_of(server, whole_).length();
  if (length != floats * sizeof(float)) throw Error("θ and states of another part");
  AlignedArray<float>& to = coming_[server];
  if (to.size() == 0) to = AlignedArray<float>(floats);
  return std::as_writable_bytes(std::span(to.data(), floats));
}

bool LedReplica::came_of(std::uint64_t server, std::uint64_t position) {
  const AlignedArray<float> part = std::exchange(coming_[server], {});
  if (wanted(server) != position) return false;  // of what is wanted no more
  shards_.scatter(server, whole_, part.data(), collected_->state.data() + kStateFloats);
  collected_->there[server] = true;
  if (std::ranges::count(collected_->there, false) > 0) return false;
  const std::uint64_t version = collected_->version;
  came(version, std::move(collected_->state));
  return true;
}

}  // namespace leashed
