#include "leashed/cluster/ring_group.h"

#include <algorithm>
#include <string>
#include <utility>

#include "leashed/base/relaxed.h"
#include "leashed/update/kernels.h"

namespace leashed {

void RingGroup::form(Ring ring) {
  if (ring.rank >= ring.fresh.size()) {
    throw Error("rank is " + std::to_string(ring.rank) + " in a ring of " +
                std::to_string(ring.fresh.size()));
  }
  std::optional<Ring> before;  // is closed without the lock: somebody else's may wait for another
  const std::lock_guard lock(mutex_);
  if (leaving_.load(kRelaxed) || ring.epoch <= newest_) return;
  newest_ = ring.epoch;
  before = std::exchange(coming_, std::move(ring));
  pending_.store(true, kRelaxed);
}

void RingGroup::want_to_leave() {
  std::optional<Ring> refused;  // its other members are not to wait for this one
  const std::lock_guard lock(mutex_);
  leaving_.store(true, kRelaxed);
  refused = std::exchange(coming_, std::nullopt);
}

void RingGroup::close() {
  want_to_leave();
  if (ring_) give_up();
}

void RingGroup::give_up() {
  count();
  ended_.store(ring_->epoch, kRelaxed);
  ring_.reset();
  in_ring_.store(false, kRelaxed);
}

void RingGroup::break_off() {
  broken_.store(ring_->epoch, kRelaxed);
  give_up();
}

void RingGroup::count() {
  if (ring_->collective) ring_->collective->count(traffic_);
}

Transfers RingGroup::transfers() const {
  const auto whole = [this](Codec codec) {
    const std::size_t frames = (dimension_ * sizeof(float) + kRingFragment - 1) / kRingFragment;
    const std::size_t bytes = encoded_size(codec, dimension_) + frames * kFrameHeader;
    return Traffic{bytes, bytes};
  };
  return exact_.transfers(traffic_.own(), whole(Codec::none), whole(codec_));
}

Peers::Begin RingGroup::begin() {
  if (!ring_) {
    const std::lock_guard lock(mutex_);
    if (!coming_ || leaving_.load(kRelaxed)) return Begin::none;
    ring_ = std::move(*coming_);
    coming_.reset();
    pending_.store(false, kRelaxed);
    in_ring_.store(true, kRelaxed);
    copied_ = false;
    round_ = 0;
    wished_ = 0;
  }
  return !copied_ && ring_->fresh.size() > 1 ? Begin::copies : Begin::ready;
}

bool RingGroup::take(std::span<float> values, const Deadline& deadline) {
  const auto& fresh = ring_->fresh;
  // Where all are new, the first one's.
  const auto first = std::find(fresh.begin(), fresh.end(), false);
  const std::size_t root =
      first == fresh.end() ? 0 : static_cast<std::size_t>(first - fresh.begin());
  try {
    const Traffic before = traffic_.own();
    ring_->collective->broadcast(values, root, deadline);
    if (update_kernels().first_not_finite(values.data(), values.size()) != values.size()) {
      throw NotFinite("what is to be taken over is not finite");  // for all members alike
    }
    copied_ = true;
    settled_.store(ring_->epoch, kRelaxed);
    if (codec_ != Codec::none) {
      common_.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(dimension_));
      error_.assign(dimension_, 0);
    }
    count();
    if (codec_ != Codec::none) {
      const Traffic now = traffic_.own();
      exact_.add({now.out - before.out, now.in - before.in});
    }
    return fresh[ring_->rank] && ring_->rank != root;
  } catch (...) {
    break_off();
    throw;
  }
}

void RingGroup::sum_encoded(std::span<float> values, std::size_t begin, const Deadline& deadline) {
  const std::span<float> common = std::span(common_).subspan(begin, values.size());
  const std::span<float> error = std::span(error_).subspan(begin, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= common[i];
  ring_->collective->sum(values, {codec_, error}, deadline);
  // Where somebody's theta is not finite, neither is this, for all members alike: nothing is kept.
  if (update_kernels().first_not_finite(values.data(), values.size()) != values.size()) {
    std::fill(error.begin(), error.end(), 0.0f);
    return;
  }
  const auto members = static_cast<float>(ring_->fresh.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    common[i] += values[i] / members;
    values[i] = members * common[i];
  }
}

std::optional<bool> RingGroup::called() {
  if (pending()) return true;
  if (!ring_ || !ring_->collective) return false;
  return ring_->collective->called();
}

// Behind the values come how many want to change over, and of how many theta has moved.
Peers::Sum RingGroup::sum(std::span<float> other, Covered& done, bool moved,
                          const Deadline& deadline) {
  const auto members = static_cast<std::uint32_t>(ring_->fresh.size());
  const std::size_t all = fragments_of(dimension_), turn = round_ % parts_;
  const std::size_t begin = std::min(dimension_, all * turn / parts_ * kFragment);
  const std::size_t end = std::min(dimension_, all * (turn + 1) / parts_ * kFragment);
  const bool wish = leaving_.load(kRelaxed) || pending_.load(kRelaxed);
  float wishes = wish ? 1 : 0;
  if (members > 1) {
    try {
      part_.assign(other.begin() + static_cast<std::ptrdiff_t>(begin),
                   other.begin() + static_cast<std::ptrdiff_t>(end));
      part_.push_back(wishes);
      part_.push_back(moved ? 1 : 0);
      if (codec_ == Codec::none) {
        ring_->collective->sum(part_, {}, deadline);
      } else {
        const std::span<float> all_of_it(part_);
        sum_encoded(all_of_it.first(end - begin), begin, deadline);
        ring_->collective->sum(all_of_it.last(2), {}, deadline);
      }
    } catch (...) {
      break_off();
      throw;
    }
    wishes = part_[end - begin];
    moved = part_.back() > 0;
    std::copy(part_.begin(), part_.end() - 2, other.begin() + static_cast<std::ptrdiff_t>(begin));
    count();
  }
  ++round_;
  settled_.store(ring_->epoch, kRelaxed);
  done.add({begin, end});
  if (wishes > 0 && ++wished_ == parts_) give_up();
  return {members, moved};
}

}  // namespace leashed
