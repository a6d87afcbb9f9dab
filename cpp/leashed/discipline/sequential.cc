#include "leashed/discipline/sequential.h"

#include "leashed/base/clock.h"

namespace leashed {

// Without the lock: the only writer is the thread that reads.
View Sequential::read(std::size_t) { return {theta_.data(), t_}; }

Publication Sequential::publish(std::size_t, float* gradient) {
  const std::lock_guard lock(mutex_);
  const double start = now();
  rule_.apply(theta_.data(), theta_.data(), gradient, dimension_);
  ++t_;
  return {.published = true, .update_seconds = now() - start};
}

}  // namespace leashed
