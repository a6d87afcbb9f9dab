#include "leashed/discipline/leashed.h"

#include <algorithm>

#include "leashed/base/clock.h"
#include "leashed/vector/shared_vector.h"

namespace leashed {

template <class Vector>
LeashedUpdate<Vector>::LeashedUpdate(Vector& vector, const Updater& updater, Gradient gradient,
                                     std::uint64_t persistence, std::uint64_t t_read,
                                     StoreChoice& stores)
    : vector_(vector),
      updater_(updater),
      gradient_(gradient),
      persistence_(persistence),
      t_read_(t_read),
      stores_(stores),
      next_(vector.claim()),
      start_(now()),
      clip_factor_(updater.clip_factor(gradient)) {}

template <class Vector>
bool LeashedUpdate<Vector>::load() {
  latest_ = vector_.pin();
  const std::uint64_t t = latest_.t();
  if (result_.tries == 0) t_entry_ = t;
  const Updater::Damping damping = updater_.damping(latest_.data(), t - t_read_);
  result_.t = t;
  result_.factor = damping.factor;
  result_.factors = damping.variables;
  result_.excluded = damping.factor == 0;
  if (result_.excluded) {
    latest_.release();
    result_.update_seconds = now() - start_;
    return false;
  }
  const double begin = now();
  updater_.apply(next_.data(), latest_.data(), gradient_,
                 {t, damping, clip_factor_, stores_.at(t)});
  stores_.took(t, now() - begin);
  return true;
}

template <class Vector>
typename LeashedUpdate<Vector>::Outcome LeashedUpdate<Vector>::commit() {
  result_.published = vector_.publish(latest_, next_);
  if (result_.published) {
    updater_.applied(result_.t - t_read_);
    result_.staleness_compute = t_entry_ - t_read_;
    result_.staleness_schedule = result_.t - t_entry_;
  } else {
    latest_.release();
    if (++result_.tries <= persistence_) return Outcome::lost;
    result_.lost_to_synchronisation = vector_.pin().t() == result_.t;
  }
  result_.update_seconds = now() - start_;
  return result_.published ? Outcome::published : Outcome::dropped;
}

template class LeashedUpdate<ParameterVector>;

template <class Vector>
Publication load_and_update(Vector& vector, const Updater& updater, Gradient gradient,
                            std::uint64_t persistence, std::uint64_t t_read, StoreChoice& stores) {
  LeashedUpdate<Vector> update(vector, updater, gradient, persistence, t_read, stores);
  while (update.load() && update.commit() == LeashedUpdate<Vector>::Outcome::lost) {
  }
  return update.result();
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
      vector_(updater_.initial(context).data(), updater_.layout().length(),
              context.workers + context.synchronisers, context.readers, context.t),
      workers_() {
  workers_.reserve(context.workers);
  for (std::size_t worker = 0; worker < context.workers; ++worker) {
    workers_.push_back({{}, StoreChoice(context.workers, vector_.length()), {}});
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

LeashedUpdate<ParameterVector> LeashedSgd::begin(std::size_t worker, const float* gradient) {
  Worker& own = workers_[worker];
  const std::uint64_t t_read = own.view.t();
  own.view.release();
  own.gradient = {gradient, 0, updater_.layout().dimension};
  return {vector_, updater_, {&own.gradient, 1}, persistence_, t_read, own.stores};
}

// As one more update by CAS, whose version is that of the vector replaced.
void LeashedSgd::transform(std::size_t begin, std::size_t end, const Transform& f) {
  ParameterVector::Draft next = vector_.claim();
  for (;;) {
    ParameterVector::Pin latest = vector_.pin();
    std::copy_n(latest.data(), vector_.length(), next.data());
    f(next.data() + begin, begin, end);
    if (vector_.publish(latest, next, 0)) return;
  }
}

void LeashedSgd::look(float*, const std::function<void(const float*)>& f) {
  const ParameterVector::Pin latest = vector_.pin();
  f(latest.data());
}

void LeashedSgd::withdraw(std::size_t worker) { workers_[worker].view.release(); }

void LeashedSgd::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  const ParameterVector::Pin latest = vector_.pin();
  f(latest.data(), latest.t());
}

}  // namespace leashed
