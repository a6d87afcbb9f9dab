#include "leashed/discipline/hogwild.h"

#include "leashed/discipline/count_and_update.h"

namespace leashed {

Hogwild::Hogwild(const DisciplineContext& context, bool copy)
    : InPlace(context),
      copy_(copy),
      workers_(local_copies(context.workers, buffer_.size(),
                            copy && context.sparse.active == 0 ? context.dimension : 0)),
      t_(context.t) {
  if (context.sparse.active == 0) return;
  runs_.emplace(buffer_.data(), updater_.layout(), updater_.rule(), t_, context.sparse,
                context.workers, copy && context.sparse.mean_squares);
  if (!runs_->shrinks().empty()) go_on(runs_->shrinks()[0], context.behind);
}

View Hogwild::read(std::size_t worker) {
  const View view = begin_read(worker);
  if (copy_) read_part(worker, 0, dimension_);
  return view;
}

View Hogwild::begin_read(std::size_t worker) {
  LocalCopy& local = workers_[worker];
  // Acquire: keeps the reads of theta after it, so that τ never counts too little. Pairs with the
  // acq_rel increment in Counted::count.
  local.t = t_.load(std::memory_order_acquire);
  return {copy_ ? local.theta.data() : theta(), local.t};
}

void Hogwild::read_part(std::size_t worker, std::size_t begin, std::size_t end) {
  kernels_.copy_racy(workers_[worker].theta.data() + begin, theta() + begin, end - begin);
}

HogwildUpdate Hogwild::begin(std::size_t worker, const float* gradient) {
  HogwildUpdate begun(updater_, buffer_.data(), gradient);
  Counted counted{buffer_.data(), t_};
  const GradientPiece whole{gradient, 0, dimension_};
  const auto keep = [&](const Updater::Update& update) {
    begun.update_ = update;
    const double* const factors = update.damping.variables;
    if (factors) begun.variables_.assign(factors, factors + updater_.layout().blocks);
  };
  begun.result_ =
      count_and_update(counted, updater_, Gradient{&whole, 1}, workers_[worker].t, keep);
  return begun;
}

void HogwildUpdate::apply(std::size_t begin, std::size_t end) const {
  Updater::Update update = update_;
  if (!variables_.empty()) update.damping.variables = variables_.data();
  updater_->apply_part_racy(buffer_, {gradient_ + begin, begin, end}, update);
}

Publication Hogwild::publish(std::size_t worker, float* gradient) {
  const GradientPiece whole{gradient, 0, dimension_};
  LocalCopy& local = workers_[worker];
  return push({&whole, 1}, local.t, local.stores);
}

Publication Hogwild::push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) {
  Counted counted{buffer_.data(), t_};
  return count_and_update(counted, updater_, gradient, t_read, stores);
}

Publication Hogwild::push_sparse(const SparseGradient& gradient, std::uint64_t t_read) {
  updater_.check_sparse();
  Counted counted{buffer_.data(), t_};
  return count_and_update(counted, updater_, gradient, t_read, [&](const Updater::Update& update) {
    updater_.apply_sparse_racy(buffer_.data(), gradient, update);
  });
}

std::unique_ptr<Held> Hogwild::hold() {
  const std::uint64_t t = t_.load(std::memory_order_acquire);  // as in read
  if (!copy_) return hold_live(t);
  auto held = std::make_unique<HeldCopies::Copy>(copies_);
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
  if (!runs_) return;
  for (const LazyShrink& shrink : runs_->shrinks()) {
    shrink.complete(snapshot_.data(), shrink.progress());
  }
}

void Hogwild::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  const std::uint64_t t = copy(dimension_);
  complete();
  f(snapshot_.data(), t);
}

void Hogwild::with_state(const std::function<void(const DisciplineState&)>& f) {
  const std::uint64_t t = copy(updater_.layout().length());
  if (runs_ && runs_->shrinks().size() == 1) {
    progress_ = runs_->shrinks()[0].progress();
    return f(state(t, runs_->shrinks()[0]));
  }
  complete();
  f({snapshot_.data(), t});
}

}  // namespace leashed
