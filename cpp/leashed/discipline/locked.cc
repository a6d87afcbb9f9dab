#include "leashed/discipline/locked.h"

#include "leashed/base/clock.h"

namespace leashed {

View Locked::read(std::size_t worker) {
  LocalCopy& local = workers_[worker];
  const std::lock_guard lock(mutex_);
  std::copy_n(theta(), dimension_, local.theta.data());
  local.t = t_;
  return {local.theta.data(), local.t};
}

Publication Locked::publish(std::size_t worker, float* gradient) {
  const double start = now();
  const double clip_factor = updater_.clip_factor(gradient);
  const double ready = now();
  const std::lock_guard lock(mutex_);
  const double locked = now();
  Publication result;
  LocalCopy& local = workers_[worker];
  const std::uint64_t tau = t_ - local.t;
  result.excluded = updater_.excludes(theta(), tau);
  if (!result.excluded) {
    const Stores stores = local.stores.at(t_);
    updater_.apply(buffer_.data(), buffer_.data(), gradient, {t_, tau, clip_factor, stores});
    local.stores.took(t_, now() - locked);
    updater_.applied(tau);
    ++t_;
    result.published = true;
    result.staleness_compute = tau;
  }
  result.update_seconds = (ready - start) + (now() - locked);
  result.waiting_seconds = locked - ready;
  return result;
}

}  // namespace leashed
