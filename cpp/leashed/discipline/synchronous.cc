#include "leashed/discipline/synchronous.h"

#include <numeric>

#include "leashed/base/clock.h"

namespace leashed {

void apply_mean(const Updater& updater, std::span<float* const> gradients, float* buffer,
                Step step) {
  const std::size_t d = updater.layout().dimension, workers = gradients.size();
  float* const mean = gradients.front();
  double squares = 0;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    const auto [begin, end] = slice_of(d, worker, workers);
    if (workers > 1) {
      update_kernels().mean(mean, gradients.data(), workers, begin, end - begin);
    }
    if (updater.clips_norm()) squares += updater.rule().sum_of_squares(mean, begin, end);
  }
  if (updater.clips_norm()) step.scale *= updater.rule().clip_factor(squares);
  for (std::size_t worker = 0; worker < workers; ++worker) {
    const auto [begin, end] = slice_of(d, worker, workers);
    updater.apply_slice(buffer, mean, begin, end, step);
  }
}

// Without the lock: theta changes only between the barriers of publish.
View Synchronous::read(std::size_t) { return {theta(), t_}; }

// One worker that wants to stop stops all. The barrier orders every store to halt_ before every
// load of it (relaxed is enough), and no one stores to it again before all have loaded: the next
// store is in the next proceed, behind the barrier of publish or withdraw. The same holds of
// abandon_, which must be a flag of its own: a worker may withdraw while another has yet to load
// halt_.
bool Synchronous::proceed(std::size_t, bool wish) {
  if (!wish) halt_.store(true, std::memory_order_relaxed);
  barrier_.arrive_and_wait();
  return !halt_.load(std::memory_order_relaxed);
}

Publication Synchronous::publish(std::size_t worker, float* gradient) {
  const double start = now();
  gradients_[worker] = gradient;
  // The last to arrive has the lock, and only while parameters change: until then the monitor may
  // look.
  std::unique_lock lock(mutex_, std::defer_lock);
  barrier_.arrive_and_wait([&] {
    if (abandon_.load(std::memory_order_relaxed)) return;
    lock.lock();
    step_ = {t_, updater_.fresh_factor()};
  });
  if (abandon_.load(std::memory_order_relaxed)) return {.abandoned = true};

  const double ready = now();
  const std::size_t workers = gradients_.size();
  const auto [begin, end] = slice_of(dimension_, worker, workers);
  float* mean = gradients_[0];
  if (workers > 1) kernels_.mean(mean, gradients_.data(), workers, begin, end - begin);
  const double scale = step_.scale * clip_factor(worker, mean, begin, end);
  updater_.apply_slice(buffer_.data(), mean, begin, end, {step_.t, scale});
  if (lock.owns_lock()) {
    updater_.applied(0);
    ++t_;
  }
  const double updated = now();
  barrier_.arrive_and_wait();
  return {.published = true,
          .t = step_.t,
          .factor = step_.scale,
          .update_seconds = updated - ready,
          .waiting_seconds = (ready - start) + (now() - updated)};
}

Publication Synchronous::publish(std::span<float* const> gradients) {
  const Step step{t_, updater_.fresh_factor()};
  apply_mean(updater_, gradients, buffer_.data(), step);
  updater_.applied(0);
  ++t_;
  return {.published = true, .t = step.t, .factor = step.scale};
}

// Every worker adds the slices' sums in the same order, so all have the same factor.
double Synchronous::clip_factor(std::size_t worker, const float* mean, std::size_t begin,
                                std::size_t end) {
  const Rule& rule = updater_.rule();
  if (!rule.clips_norm()) return 1;
  squares_[worker] = rule.sum_of_squares(mean, begin, end);
  barrier_.arrive_and_wait();
  return rule.clip_factor(std::accumulate(squares_.begin(), squares_.end(), 0.0));
}

// Between proceed and publish, where the others may wait for this worker's gradient: they are told
// to give up. Between publish and proceed: they are told to halt. Whoever sees neither flag in
// time sees it at the next barrier, and by then waits for those alone who have not left.
void Synchronous::leave(std::size_t) {
  abandon_.store(true, std::memory_order_relaxed);
  halt_.store(true, std::memory_order_relaxed);
  barrier_.arrive_and_drop();
}

// Takes part in the barrier that the others wait at in publish, and tells them to give up.
void Synchronous::withdraw(std::size_t) {
  abandon_.store(true, std::memory_order_relaxed);
  barrier_.arrive_and_wait();
}

}  // namespace leashed
