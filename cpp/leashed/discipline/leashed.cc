#include "leashed/discipline/leashed.h"

#include "leashed/base/clock.h"
#include "leashed/vector/shared_vector.h"

namespace leashed {

template <class Vector>
Publication load_and_update(Vector& vector, const Updater& updater, Gradient gradient,
                            std::uint64_t persistence, std::uint64_t t_read, StoreChoice& stores) {
  Publication result;
  typename Vector::Draft next = vector.claim();
  std::uint64_t t_entry = 0;
  const double start = now();
  const double clip_factor = updater.clip_factor(gradient);
  for (;;) {
    typename Vector::Pin latest = vector.pin();
    const std::uint64_t t_replaced = latest.t();
    if (result.tries == 0) t_entry = t_replaced;
    const std::uint64_t tau = t_replaced - t_read;
    result.excluded = updater.excludes(latest.data(), tau);
    if (result.excluded) break;
    const double begin = now();
    updater.apply(next.data(), latest.data(), gradient,
                  {t_replaced, tau, clip_factor, stores.at(t_replaced)});
    stores.took(t_replaced, now() - begin);
    result.published = vector.publish(latest, next);
    if (result.published) {
      updater.applied(tau);
      result.staleness_compute = t_entry - t_read;
      result.staleness_schedule = t_replaced - t_entry;
      break;
    }
    if (++result.tries > persistence) break;
  }
  result.update_seconds = now() - start;
  return result;
}

template Publication load_and_update(ParameterVector&, const Updater&, Gradient, std::uint64_t,
                                     std::uint64_t, StoreChoice&);
template Publication load_and_update(SharedVector::Participant&, const Updater&, Gradient,
                                     std::uint64_t, std::uint64_t, StoreChoice&);

std::unique_ptr<Held> hold_latest(ParameterVector& vector) {
  struct Pinned final : Held {
    ParameterVector::Pin pin;
  };
  auto held = std::make_unique<Pinned>();
  held->pin = vector.pin();
  held->view = {held->pin.data(), held->pin.t()};
  return held;
}

LeashedSgd::LeashedSgd(const DisciplineContext& context, std::uint64_t persistence)
    : updater_(context),
      persistence_(persistence),
      vector_(updater_.initial(context).data(), updater_.layout().length(), context.workers,
              context.readers, context.t),
      workers_() {
  workers_.reserve(context.workers);
  for (std::size_t worker = 0; worker < context.workers; ++worker) {
    workers_.push_back({{}, StoreChoice(context.workers, vector_.length())});
  }
}

View LeashedSgd::read(std::size_t worker) {
  ParameterVector::Pin& view = workers_[worker].view;
  view = vector_.pin();
  return {view.data(), view.t()};
}

Publication LeashedSgd::publish(std::size_t worker, float* gradient) {
  ParameterVector::Pin& view = workers_[worker].view;
  const std::uint64_t t_read = view.t();
  view.release();
  const GradientPiece whole{gradient, 0, updater_.layout().dimension};
  return push({&whole, 1}, t_read, workers_[worker].stores);
}

void LeashedSgd::withdraw(std::size_t worker) { workers_[worker].view.release(); }

void LeashedSgd::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  const ParameterVector::Pin latest = vector_.pin();
  f(latest.data(), latest.t());
}

}  // namespace leashed
