#include "leashed/discipline/locked.h"

namespace leashed {

View Locked::read(std::size_t worker) {
  LocalCopy& local = workers_[worker];
  const std::lock_guard lock(mutex_);
  std::copy_n(theta(), dimension_, local.theta.data());
  local.t = t_;
  return {local.theta.data(), local.t};
}

std::unique_ptr<Held> Locked::hold() {
  auto held = std::make_unique<HeldCopies::Copy>(copies_);
  const std::lock_guard lock(mutex_);
  std::copy_n(theta(), dimension_, held->theta());
  held->view = {held->theta(), t_};
  return held;
}

Publication Locked::publish(std::size_t worker, float* gradient) {
  const GradientPiece whole{gradient, 0, dimension_};
  LocalCopy& local = workers_[worker];
  return push({&whole, 1}, local.t, local.stores);
}

Publication Locked::push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) {
  const double start = now();
  const double clip_factor = updater_.clip_factor(gradient);
  const double ready = updater_.clips_norm() ? now() : start;
  const TimedLock lock(mutex_, ready);
  const std::uint64_t tau = t_ - t_read;
  const Updater::Damping damping = updater_.damping(theta(), tau);
  Publication result{.excluded = damping.factor == 0,
                     .t = t_,
                     .factor = damping.factor,
                     .factors = damping.variables};
  if (!result.excluded) {
    updater_.apply(buffer_.data(), buffer_.data(), gradient,
                   {t_, damping, clip_factor, stores.at(t_)});
    stores.took(t_, now() - lock.taken);
    updater_.applied(tau);
    ++t_;
    result.published = true;
    result.staleness_compute = tau;
  }
  result.update_seconds = (ready - start) + (now() - lock.taken);
  result.waiting_seconds = lock.taken - ready;
  return result;
}

}  // namespace leashed
