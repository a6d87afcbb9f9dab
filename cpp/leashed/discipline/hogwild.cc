#include "leashed/discipline/hogwild.h"

#include "leashed/base/clock.h"

namespace leashed {

Hogwild::Hogwild(const float* initial, std::size_t dimension, std::size_t workers, const Rule& rule,
                 bool copy)
    : InPlace(initial, dimension, rule),
      copy_(copy),
      workers_(local_copies(workers, copy ? dimension : 0)) {}

View Hogwild::read(std::size_t worker) {
  LocalCopy& local = workers_[worker];
  // Acquire: keeps the reads of theta after it, so that τ never counts too little. Pairs with the
  // acq_rel increment in publish.
  local.t = t_.load(std::memory_order_acquire);
  if (!copy_) return {theta_.data(), local.t};
  kernels_.copy_racy(local.theta.data(), theta_.data(), dimension_);
  return {local.theta.data(), local.t};
}

Publication Hogwild::publish(std::size_t worker, float* gradient) {
  const double start = now();
  // Release: whoever reads this count with acquire (read, with_snapshot) also sees what this thread
  // wrote before; acquire: its own writes below do not come before the count is taken. Which of the
  // other threads' writes a reader sees is left to chance: that is Hogwild.
  const std::uint64_t replaced = t_.fetch_add(1, std::memory_order_acq_rel);
  rule_.apply_racy(theta_.data(), gradient, dimension_);
  return {.published = true,
          .staleness_compute = replaced - workers_[worker].t,
          .update_seconds = now() - start};
}

void Hogwild::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  const std::uint64_t t = t_.load(std::memory_order_acquire);  // as in read
  kernels_.copy_racy(snapshot_.data(), theta_.data(), dimension_);
  f(snapshot_.data(), t);
}

}  // namespace leashed
