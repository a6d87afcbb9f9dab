#include "leashed/discipline/sequential.h"

#include "leashed/base/clock.h"

namespace leashed {

// Without the lock: the only writer is the thread that reads.
View Sequential::read(std::size_t) { return {theta(), t_}; }

Publication Sequential::publish(std::size_t, float* gradient) {
  const std::lock_guard lock(mutex_);
  const double start = now();
  updater_.apply(buffer_.data(), buffer_.data(), gradient, {t_, 0, updater_.clip_factor(gradient)});
  updater_.applied(0);
  ++t_;
  return {.published = true, .update_seconds = now() - start};
}

}  // namespace leashed
