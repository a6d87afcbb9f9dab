#include "leashed/sparse/replicas.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace leashed {

Replicas::Replicas(const float* buffer, const Layout& layout, std::size_t workers,
                   const SparseUse& use)
    : use_(use),
      buffer_stride_(layout.stride()),
      parts_(1 + layout.states),
      stride_(Layout{use.active}.stride()),
      replicas_(workers) {
  if (workers == 0) return;
  const auto [width, intercepts] = use.shape;
  const std::size_t active = (use.active - intercepts) / width;  // columns
  std::size_t begin = 0, end = kFirst;
  do {
    end = std::min(end, active);
    ends_.push_back(intercepts + end * width);
    mean_squares_.push_back(
        begin < end ? *std::max_element(use.mean_squares + begin, use.mean_squares + end) : 0);
    begin = end;
    end *= 2;
  } while (begin < active);
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

float Replicas::weight(double contraction, double mean_square) const {
  const auto m = static_cast<double>(replicas_.size());
  const double gone = -std::expm1(-kMargin * contraction * mean_square);
  return m * gone > 1 ? static_cast<float>(1 / (m * gone)) : 1.0f;
}

void Replicas::merge(std::size_t worker, float* buffer, const RunEffect& effect) {
  Replica& replica = replicas_[worker];
  replica.total = effect;
  const auto doublings = static_cast<std::size_t>(std::countr_zero(++replica.merges));
  replica.due = std::max(replica.due, std::min(1 + doublings, ends_.size()));
  std::unique_lock lock(merging_, std::defer_lock);
  if (replica.due > 1 && lock.try_lock()) {
    merge_tiers(replica, buffer, std::exchange(replica.due, 0));
  } else {
    merge_tiers(replica, buffer, 1);
  }
}

void Replicas::merge_all(std::size_t worker, float* buffer) {
  const std::lock_guard lock(merging_);
  merge_tiers(replicas_[worker], buffer, ends_.size());
}

void Replicas::merge_tiers(Replica& replica, float* buffer, std::size_t tiers) {
  const auto merge = [&](std::size_t part, std::size_t begin, std::size_t end, double log_factor,
                         float weight) {
    const std::size_t at = part * stride_ + begin;
    kernels_.merge_racy(buffer + part * buffer_stride_ + begin, replica.local.data() + at,
                        replica.base.data() + at, static_cast<float>(std::exp(log_factor)), weight,
                        end - begin);
  };
  std::size_t begin = use_.shape.intercepts;
  const double contraction = replica.total.contraction - replica.done[0].contraction;
  merge(0, 0, begin, 0, weight(contraction, 1));  // the intercept
  for (std::size_t tier = 0; tier < tiers; begin = ends_[tier++]) {
    RunEffect& done = replica.done[tier];
    merge(0, begin, ends_[tier], replica.total.log_shrink - done.log_shrink,
          weight(replica.total.contraction - done.contraction, mean_squares_[tier]));
    done = replica.total;
  }
  for (std::size_t part = 1; part < parts_; ++part) merge(part, 0, begin, 0, 1);
}

}  // namespace leashed
