#include "leashed/cluster/ring_group.h"

#include <algorithm>
#include <string>
#include <utility>

#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

void RingGroup::form(Ring ring) {
  if (ring.rank >= ring.fresh.size()) {
    throw Error("rank is " + std::to_string(ring.rank) + " in a ring of " +
                std::to_string(ring.fresh.size()));
  }
  const std::lock_guard lock(mutex_);
  if (leaving_.load(kRelaxed) || ring.epoch <= newest_) return;
  newest_ = ring.epoch;
  coming_ = std::move(ring);
  pending_.store(true, kRelaxed);
}

void RingGroup::want_to_leave() {
  const std::lock_guard lock(mutex_);
  leaving_.store(true, kRelaxed);
  coming_.reset();  // its other members are not to wait for this one
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
  if (!ring_->next) return;
  out_.fetch_add(ring_->next->sent() - std::exchange(sent_, ring_->next->sent()), kRelaxed);
  in_.fetch_add(ring_->previous->received() - std::exchange(received_, ring_->previous->received()),
                kRelaxed);
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
    sent_ = received_ = 0;
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
    const RingPlace place{*ring_->previous, *ring_->next, ring_->rank, fresh.size()};
    broadcast(place, root, kBroadcast, round_, values, deadline);
    if (update_kernels().first_not_finite(values.data(), values.size()) != values.size()) {
      throw NotFinite("what is to be taken over is not finite");  // for all members alike
    }
    copied_ = true;
    if (codec_ != Codec::none) {
      common_.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(dimension_));
      error_.assign(dimension_, 0);
    }
    count();
    return fresh[ring_->rank] && ring_->rank != root;
  } catch (...) {
    break_off();
    throw;
  }
}

void RingGroup::sum_encoded(const RingPlace& place, std::span<float> values, std::size_t begin,
                            const Deadline& deadline) {
  const std::span<float> common = std::span(common_).subspan(begin, values.size());
  const std::span<float> error = std::span(error_).subspan(begin, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= common[i];
  all_reduce(place, reduce_kind(codec_), round_, values, deadline, {codec_, error});
  // Where somebody's theta is not finite, neither is this, for all members alike: nothing is kept.
  if (update_kernels().first_not_finite(values.data(), values.size()) != values.size()) {
    std::fill(error.begin(), error.end(), 0.0f);
    return;
  }
  const auto members = static_cast<float>(place.members);
  for (std::size_t i = 0; i < values.size(); ++i) {
    common[i] += values[i] / members;
    values[i] = members * common[i];
  }
}

std::uint32_t RingGroup::sum(std::span<float> other, Covered& done, const Deadline& deadline) {
  const auto members = static_cast<std::uint32_t>(ring_->fresh.size());
  const std::size_t all = fragments_of(dimension_), turn = round_ % parts_;
  const std::size_t begin = std::min(dimension_, all * turn / parts_ * kFragment);
  const std::size_t end = std::min(dimension_, all * (turn + 1) / parts_ * kFragment);
  const bool wish = leaving_.load(kRelaxed) || pending_.load(kRelaxed);
  float wishes = wish ? 1 : 0;
  if (members > 1) {
    try {
      const RingPlace place{*ring_->previous, *ring_->next, ring_->rank, members};
      part_.assign(other.begin() + static_cast<std::ptrdiff_t>(begin),
                   other.begin() + static_cast<std::ptrdiff_t>(end));
      part_.push_back(wishes);
      if (codec_ == Codec::none) {
        all_reduce(place, kReduce, round_, part_, deadline);
      } else {
        const std::span<float> all_of_it(part_);
        sum_encoded(place, all_of_it.first(end - begin), begin, deadline);
        all_reduce(place, kReduce, round_, all_of_it.last(1), deadline);
      }
    } catch (...) {
      break_off();
      throw;
    }
    wishes = part_.back();
    std::copy(part_.begin(), part_.end() - 1, other.begin() + static_cast<std::ptrdiff_t>(begin));
    count();
  }
  ++round_;
  settled_.store(ring_->epoch, kRelaxed);
  done.add({begin, end});
  if (wishes > 0) give_up();
  return members;
}

}  // namespace leashed
