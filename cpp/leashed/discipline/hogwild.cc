#include "leashed/discipline/hogwild.h"

#include "leashed/base/clock.h"

namespace leashed {

Hogwild::Hogwild(const DisciplineContext& context, bool copy)
    : InPlace(context),
      copy_(copy),
      workers_(local_copies(context.workers, buffer_.size(),
                            copy && context.sparse.active == 0 ? context.dimension : 0)),
      // One worker alone has nobody to be kept apart from.
      replicas_(buffer_.data(), updater_.layout(),
                copy && context.sparse.active > 0 && context.workers > 1 ? context.workers : 0,
                context.sparse),
      shrinks_(replicas_.empty() ? context.workers : 0,
               LazyShrink(context.sparse.outputs, context.sparse.active)),
      t_(context.t) {
  for (LocalCopy& local : workers_) local.t = context.t;
  if (!shrinks_.empty()) go_on(shrinks_[0], context.behind);
}

View Hogwild::read(std::size_t worker) {
  LocalCopy& local = workers_[worker];
  // Acquire: keeps the reads of theta after it, so that τ never counts too little. Pairs with the
  // acq_rel increment in count.
  local.t = t_.load(std::memory_order_acquire);
  if (!copy_) return {theta(), local.t};
  kernels_.copy_racy(local.theta.data(), theta(), dimension_);
  return {local.theta.data(), local.t};
}

bool Hogwild::count(std::uint64_t t_read, std::uint64_t& replaced) {
  // Release: whoever reads this count with acquire (read, with_copy) also sees what this thread
  // wrote before; acquire: its own writes below do not come before the count is taken. Which of the
  // other threads' writes a reader sees is left to chance: that is Hogwild.
  if (!updater_.may_exclude()) {
    replaced = t_.fetch_add(1, std::memory_order_acq_rel);
    return true;
  }
  // τ must be known before the count is taken. The first load is a guess that the CAS checks, and
  // what a failed CAS finds is only compared with: relaxed.
  replaced = t_.load(std::memory_order_relaxed);
  do {
    if (updater_.excludes(theta(), replaced - t_read)) return false;
  } while (!t_.compare_exchange_weak(replaced, replaced + 1, std::memory_order_acq_rel,
                                     std::memory_order_relaxed));
  return true;
}

template <class Apply>
Publication Hogwild::update(double start, std::uint64_t t_read, const Apply& apply) {
  Publication result;
  std::uint64_t replaced;
  result.published = count(t_read, replaced);
  result.excluded = !result.published;
  if (result.published) {
    const std::uint64_t tau = replaced - t_read;
    apply(replaced, tau);
    updater_.applied(tau);
    result.staleness_compute = tau;
  }
  result.update_seconds = now() - start;
  return result;
}

InPlaceView Hogwild::open(std::size_t worker, std::uint64_t updates) {
  // As in count.
  const std::uint64_t t = t_.fetch_add(updates, std::memory_order_acq_rel);
  if (!replicas_.empty()) {
    return {replicas_.local(worker), replicas_.stride(), t, &updater_.rule(), 0,
            replicas_.effect(worker)};
  }
  workers_[worker].t = t + updates;
  return {buffer_.data(),
          updater_.layout().stride(),
          t,
          &updater_.rule(),
          0,
          {.log_shrink = shrinks_[worker].total()}};
}

// Without copies every batch reads what is there, so it is behind by what the others did while this
// worker did one update. With copies, by what they have done since the last merge before this run.
Publication Hogwild::close(std::size_t worker, std::uint64_t updates, const RunEffect& effect) {
  const double start = now();
  const std::uint64_t t = t_.load(std::memory_order_acquire);  // as in read
  std::uint64_t& seen = workers_[worker].t;
  Publication result{.published = true};
  if (!replicas_.empty()) {
    result.staleness_compute = t - updates - seen;
    seen = t;
    replicas_.merge(worker, buffer_.data(), effect);
  } else {
    result.staleness_compute = (t - seen + updates / 2) / updates;
    shrinks_[worker].advance(effect.log_shrink, effect.whole, buffer_.data());
  }
  result.update_seconds = now() - start;
  return result;
}

void Hogwild::leave(std::size_t worker) {
  if (!replicas_.empty()) replicas_.merge_all(worker, buffer_.data());
}

Publication Hogwild::publish(std::size_t worker, float* gradient) {
  const GradientPiece whole{gradient, 0, dimension_};
  LocalCopy& local = workers_[worker];
  return push({&whole, 1}, local.t, local.stores);
}

Publication Hogwild::push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) {
  const double start = now();
  const double clip_factor = updater_.clip_factor(gradient);
  return update(start, t_read, [&](std::uint64_t replaced, std::uint64_t tau) {
    const double begin = now();
    updater_.apply_racy(buffer_.data(), gradient,
                        {replaced, tau, clip_factor, stores.at(replaced)});
    stores.took(replaced, now() - begin);
  });
}

Publication Hogwild::push_sparse(const SparseGradient& gradient, std::uint64_t t_read) {
  const double start = now();
  updater_.check_sparse();
  const double clip_factor = updater_.clip_factor(gradient);
  return update(start, t_read, [&](std::uint64_t replaced, std::uint64_t tau) {
    updater_.apply_sparse_racy(buffer_.data(), gradient, {replaced, tau, clip_factor});
  });
}

std::unique_ptr<Held> Hogwild::hold() {
  const std::uint64_t t = t_.load(std::memory_order_acquire);  // as in read
  if (!copy_) return hold_live(t);
  auto held = std::make_unique<Copies::Copy>(copies_);
  kernels_.copy_racy(held->theta(), theta(), dimension_);
  held->view = {held->theta(), t};
  return held;
}

std::uint64_t Hogwild::copy(std::size_t length) {
  const std::uint64_t t = t_.load(std::memory_order_acquire);  // as in read
  kernels_.copy_racy(snapshot_.data(), theta(), length);
  return t;
}

void Hogwild::complete() {
  for (const LazyShrink& shrink : shrinks_) {
    shrink.complete(snapshot_.data(), shrink.progress());
  }
}

void Hogwild::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  const std::uint64_t t = copy(dimension_);
  complete();
  f(snapshot_.data(), t);
}

void Hogwild::with_state(const std::function<void(const State&)>& f) {
  const std::uint64_t t = copy(updater_.layout().length());
  if (shrinks_.size() == 1) {
    progress_ = shrinks_[0].progress();
    return f(state(t, shrinks_[0]));
  }
  complete();
  f({snapshot_.data(), t});
}

}  // namespace leashed
