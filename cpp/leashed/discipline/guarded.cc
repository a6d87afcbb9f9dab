#include "leashed/discipline/guarded.h"

namespace leashed {

Guarded::Guarded(const DisciplineContext& context) : InPlace(context), t_(context.t) {
  if (context.sparse.active == 0) return;
  runs_.emplace(buffer_.data(), updater_.layout(), updater_.rule(), mutex_, t_, context.sparse);
  go_on(runs_->shrink(), context.behind);
}

std::uint64_t Guarded::copy(std::size_t length) {
  const std::lock_guard lock(mutex_);
  std::copy_n(buffer_.data(), length, snapshot_.data());
  if (runs_) progress_ = runs_->shrink().progress();
  return t_;
}

void Guarded::with_snapshot(const std::function<void(const float*, std::uint64_t)>& f) {
  const std::uint64_t t = copy(dimension_);
  if (runs_) runs_->shrink().complete(snapshot_.data(), progress_);
  f(snapshot_.data(), t);
}

void Guarded::with_state(const std::function<void(const DisciplineState&)>& f) {
  const std::uint64_t t = copy(updater_.layout().length());
  f(runs_ ? state(t, runs_->shrink()) : DisciplineState{snapshot_.data(), t});
}

// By parts although there is a lock: under Sequential and Synchronous gradients are computed on the
// vector itself, which then changes meanwhile as under Hogwild without a copy.
void Guarded::transform(std::size_t begin, std::size_t end, const Transform& f) {
  const std::lock_guard lock(mutex_);
  if (runs_) runs_->shrink().catch_up(buffer_.data());
  transform_parts(begin, end, f);
}

void Guarded::look(float* copy, const std::function<void(const float*)>& f) {
  {
    const std::lock_guard lock(mutex_);
    if (runs_) runs_->shrink().catch_up(buffer_.data());
    std::copy_n(theta(), dimension_, copy);
  }
  f(copy);
}

std::uint64_t Guarded::updates() {
  const std::lock_guard lock(mutex_);
  return t_;
}

}  // namespace leashed
