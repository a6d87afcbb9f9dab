#include "leashed/discipline/leashed.h"

#include "leashed/base/clock.h"

namespace leashed {

Publication load_and_update(ParameterVector& vector, const Rule& rule, const float* gradient,
                            std::uint64_t persistence, std::uint64_t t_read) {
  Publication result;
  ParameterVector::Draft next = vector.claim();
  std::uint64_t t_entry = 0;
  const double start = now();
  for (;;) {
    ParameterVector::Pin latest = vector.pin();
    const std::uint64_t t_replaced = latest.t();
    if (result.tries == 0) t_entry = t_replaced;
    rule.apply(next.data(), latest.data(), gradient, vector.length());
    result.published = vector.publish(latest, next);
    if (result.published) {
      result.staleness_compute = t_entry - t_read;
      result.staleness_schedule = t_replaced - t_entry;
      break;
    }
    if (++result.tries > persistence) break;
  }
  result.update_seconds = now() - start;
  return result;
}

LeashedSgd::LeashedSgd(const float* initial, std::size_t dimension, std::size_t workers,
                       const Rule& rule, std::uint64_t persistence, std::size_t readers)
    : rule_(rule),
      persistence_(persistence),
      vector_(initial, dimension, workers, readers),
      workers_(workers) {}

View LeashedSgd::read(std::size_t worker) {
  ParameterVector::Pin& view = workers_[worker].view;
  view = vector_.pin();
  return {view.data(), view.t()};
}

Publication LeashedSgd::publish(std::size_t worker, float* gradient) {
  ParameterVector::Pin& view = workers_[worker].view;
  const std::uint64_t t_read = view.t();
  view.release();
  return load_and_update(vector_, rule_, gradient, persistence_, t_read);
}

void LeashedSgd::withdraw(std::size_t worker) { workers_[worker].view.release(); }

void LeashedSgd::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  const ParameterVector::Pin latest = vector_.pin();
  f(latest.data(), latest.t());
}

}  // namespace leashed
