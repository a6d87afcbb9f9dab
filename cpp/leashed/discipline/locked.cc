#include "leashed/discipline/locked.h"

#include "leashed/base/clock.h"

namespace leashed {

View Locked::read(std::size_t worker) {
  LocalCopy& local = workers_[worker];
  const std::lock_guard lock(mutex_);
  std::copy_n(theta_.data(), dimension_, local.theta.data());
  local.t = t_;
  return {local.theta.data(), local.t};
}

Publication Locked::publish(std::size_t worker, float* gradient) {
  const double start = now();
  const std::lock_guard lock(mutex_);
  const double locked = now();
  rule_.apply(theta_.data(), theta_.data(), gradient, dimension_);
  const std::uint64_t replaced = t_++;
  return {.published = true,
          .staleness_compute = replaced - workers_[worker].t,
          .update_seconds = now() - locked,
          .waiting_seconds = locked - start};
}

}  // namespace leashed
