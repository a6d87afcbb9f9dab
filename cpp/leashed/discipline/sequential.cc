#include "leashed/discipline/sequential.h"

#include "leashed/base/clock.h"

namespace leashed {

// Without the lock: the only writer is the thread that reads.
View Sequential::read(std::size_t) { return {theta(), t_}; }

Publication Sequential::publish(std::size_t, float* gradient) {
  const double start = now();
  const double clip_factor = updater_.clip_factor(gradient);
  const double ready = now();
  const std::lock_guard lock(mutex_);
  const double locked = now();
  updater_.apply(buffer_.data(), buffer_.data(), gradient, {t_, 0, clip_factor});
  updater_.applied(0);
  ++t_;
  return {.published = true, .update_seconds = (ready - start) + (now() - locked)};
}

}  // namespace leashed
