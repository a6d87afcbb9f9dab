#include "leashed/discipline/sequential.h"

namespace leashed {

// Without the lock: the only writer is the thread that reads.
View Sequential::read(std::size_t) { return {theta(), t_}; }

Publication Sequential::publish(std::size_t, float* gradient) {
  const GradientPiece whole{gradient, 0, dimension_};
  StoreChoice stores(1, 0);
  return push({&whole, 1}, t_, stores);
}

Publication Sequential::push(Gradient gradient, std::uint64_t t_read, StoreChoice&) {
  const double start = now();
  const double clip_factor = updater_.clip_factor(gradient);
  const double ready = updater_.clips_norm() ? now() : start;
  const TimedLock lock(mutex_, ready);
  const std::uint64_t tau = t_ - t_read;  // 0, but for who pushes twice after one read
  const Updater::Damping damping = updater_.damping(theta(), tau);
  Publication result{.excluded = damping.factor == 0,
                     .t = t_,
                     .factor = damping.factor,
                     .factors = damping.variables};
  if (!result.excluded) {
    updater_.apply(buffer_.data(), buffer_.data(), gradient, {t_, damping, clip_factor});
    updater_.applied(tau);
    ++t_;
    result.published = true;
    result.staleness_compute = tau;
  }
  result.update_seconds = (ready - start) + (now() - lock.taken);
  return result;
}

}  // namespace leashed
