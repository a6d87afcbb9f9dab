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

void Sequential::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  std::uint64_t t;
  {
    const std::lock_guard lock(mutex_);
    std::copy_n(theta_.data(), dimension_, snapshot_.data());
    t = t_;
  }
  f(snapshot_.data(), t);
}

std::uint64_t Sequential::t() const {
  const std::lock_guard lock(mutex_);
  return t_;
}

}  // namespace leashed
