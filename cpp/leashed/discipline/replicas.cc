#include "leashed/discipline/replicas.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace leashed {

Replicas::Replicas(const float* buffer, const Layout& layout, std::size_t workers,
                   const SparseUse& use)
    : use_(use),
      buffer_stride_(layout.stride()),
      parts_(1 + layout.states),
      stride_(Layout{use.active}.stride()),
      replicas_(workers) {
  for (std::size_t columns = kFirst;; columns *= 2) {
    ends_.push_back(std::min((columns + 1) * use.outputs, use.active));
    if (ends_.back() == use.active) break;
  }
  for (Replica& replica : replicas_) {
    replica.local = AlignedArray<float>(parts_ * stride_);
    replica.base = AlignedArray<float>(parts_ * stride_);
    replica.done.resize(ends_.size());
    for (std::size_t part = 0; part < parts_; ++part) {
      const float* from = buffer + part * buffer_stride_;
      std::copy_n(from, use.active, replica.local.data() + part * stride_);
      std::copy_n(from, use.active, replica.base.data() + part * stride_);
    }
  }
}

void Replicas::merge(std::size_t worker, float* buffer, double log_shrink) {
  Replica& replica = replicas_[worker];
  replica.total += log_shrink;
  const auto doublings = static_cast<std::size_t>(std::countr_zero(++replica.merges));
  merge_tiers(replica, buffer, std::min(1 + doublings, ends_.size()));
}

void Replicas::merge_all(std::size_t worker, float* buffer) {
  merge_tiers(replicas_[worker], buffer, ends_.size());
}

void Replicas::merge_tiers(Replica& replica, float* buffer, std::size_t tiers) {
  const auto merge = [&](std::size_t part, std::size_t begin, std::size_t end, float factor) {
    const std::size_t at = part * stride_ + begin;
    kernels_.merge_racy(buffer + part * buffer_stride_ + begin, replica.local.data() + at,
                        replica.base.data() + at, factor, end - begin);
  };
  for (std::size_t tier = 0; tier < tiers; ++tier) {
    const auto factor = static_cast<float>(std::exp(replica.total - replica.done[tier]));
    replica.done[tier] = replica.total;
    std::size_t begin = tier ? ends_[tier - 1] : 0;
    if (tier == 0) {
      begin = std::min(use_.outputs, ends_[0]);
      merge(0, 0, begin, 1.0f);  // the intercept
    }
    merge(0, begin, ends_[tier], factor);
  }
  for (std::size_t part = 1; part < parts_; ++part) merge(part, 0, ends_[tiers - 1], 1.0f);
}

}  // namespace leashed
