#include "leashed/discipline/updater.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace leashed {
namespace {

// The norms of last updates are read and written by all threads at once under Hogwild. Relaxed: a
// norm is a hint of its own and stands for nothing else.
float load(const float* norm) {
  return std::atomic_ref<float>(*const_cast<float*>(norm)).load(std::memory_order_relaxed);
}
void store(float* norm, double squares) {
  std::atomic_ref<float>(*norm).store(static_cast<float>(std::sqrt(squares)),
                                      std::memory_order_relaxed);
}

std::vector<std::size_t> blocks_of(const DisciplineContext& context) {
  return context.block_ends.empty() ? std::vector{context.dimension} : context.block_ends;
}

}  // namespace

Updater::Updater(const DisciplineContext& context)
    : rule_(context.rule),
      staleness_(context.staleness),
      block_ends_(blocks_of(context)),
      layout_{context.dimension, rule_.states(),
              staleness_.stage_aware() ? block_ends_.size() : 0} {}

Updater::Updater(std::size_t dimension, const Rule& rule)
    : Updater(DisciplineContext{nullptr, dimension, 1, 0, rule}) {}

void Updater::initialise(float* buffer, const DisciplineContext& context) const {
  if (context.state) {
    std::copy_n(context.state, layout_.length(), buffer);
  } else {
    rule_.initialise(buffer, layout_, context.initial);
  }
}

AlignedArray<float> Updater::initial(const DisciplineContext& context) const {
  AlignedArray<float> buffer(layout_.length());
  initialise(buffer.data(), context);
  return buffer;
}

Updater::Damping Updater::damping(const float* current, std::uint64_t tau) const {
  if (layout_.blocks == 0) return {staleness_.factor(static_cast<double>(tau))};
  thread_local std::vector<double> factors;
  factors.resize(layout_.blocks);
  for (std::size_t b = 0; b < layout_.blocks; ++b) {
    const double last_update = load(current + layout_.last_updates() + b);
    factors[b] = staleness_.factor(staleness_.staged(static_cast<double>(tau), last_update));
  }
  return {*std::max_element(factors.begin(), factors.end()), factors.data()};
}

double Updater::clip_factor(Gradient gradient) const {
  if (!rule_.clips_norm()) return 1;
  double squares = 0;
  for (const GradientPiece& piece : gradient) {
    squares += rule_.sum_of_squares(piece.values, 0, piece.end - piece.begin);
  }
  return rule_.clip_factor(squares);
}

template <class F, class Leave>
void Updater::for_each_stretch(Gradient gradient, F&& f, Leave&& leave) const {
  std::size_t done = 0, block = 0;
  for (const GradientPiece& piece : gradient) {
    if (piece.begin > done) leave(done, piece.begin);
    for (done = piece.begin; done < piece.end;) {
      while (block_ends_[block] <= done) ++block;
      const std::size_t end = layout_.blocks ? std::min(piece.end, block_ends_[block]) : piece.end;
      f(piece.values - piece.begin, block, done, end);
      done = end;
    }
  }
  if (done < layout_.dimension) leave(done, layout_.dimension);
}

void Updater::apply(float* next, const float* current, Gradient gradient,
                    const Update& update) const {
  const auto leave = [&](std::size_t begin, std::size_t end) {
    rule_.leave(next, current, layout_.stride(), begin, end, {update.t});
  };
  if (layout_.blocks == 0) {
    const double scale = update.damping.factor * update.clip_factor;
    for_each_stretch(
        gradient,
        [&](const float* g, std::size_t, std::size_t begin, std::size_t end) {
          rule_.apply(next, current, layout_.stride(), g, begin, end,
                      {update.t, scale, update.stores, update.missed});
        },
        leave);
    return;
  }
  if (next != current)
    std::copy_n(current + layout_.last_updates(), layout_.blocks, next + layout_.last_updates());
  for_each_stretch(
      gradient,
      [&](const float* g, std::size_t b, std::size_t begin, std::size_t end) {
        const double factor = update.damping.variables[b];
        if (factor == 0) return leave(begin, end);  // this variable's gradient is left out
        store(next + layout_.last_updates() + b,
              rule_.apply(next, current, layout_.stride(), g, begin, end,
                          {update.t, factor * update.clip_factor, update.stores}, true));
      },
      leave);
}

void Updater::apply_racy(float* buffer, Gradient gradient, const Update& update) const {
  apply_racy(buffer, gradient, update, [&](std::size_t begin, std::size_t end) {
    rule_.leave(buffer, buffer, layout_.stride(), begin, end, {update.t});
  });
}

void Updater::apply_part_racy(float* buffer, const GradientPiece& piece,
                              const Update& update) const {
  apply_racy(buffer, {&piece, 1}, update, [](std::size_t, std::size_t) {});
}

template <class Uncovered>
void Updater::apply_racy(float* buffer, Gradient gradient, const Update& update,
                         Uncovered&& uncovered) const {
  if (layout_.blocks == 0) {
    const double scale = update.damping.factor * update.clip_factor;
    for_each_stretch(
        gradient,
        [&](const float* g, std::size_t, std::size_t begin, std::size_t end) {
          rule_.apply_racy(buffer, layout_.stride(), g, begin, end,
                           {update.t, scale, update.stores});
        },
        uncovered);
    return;
  }
  for_each_stretch(
      gradient,
      [&](const float* g, std::size_t b, std::size_t begin, std::size_t end) {
        const double factor = update.damping.variables[b];
        if (factor == 0) {
          return rule_.leave(buffer, buffer, layout_.stride(), begin, end, {update.t});
        }
        store(buffer + layout_.last_updates() + b,
              rule_.apply_racy(buffer, layout_.stride(), g, begin, end,
                               {update.t, factor * update.clip_factor, update.stores}, true));
      },
      uncovered);
}

void Updater::check_sparse() const {
  if (!rule_.keeps_untouched()) {
    throw Error(
        "this rule also changes parameters whose gradient is zero, so a sparse gradient cannot be "
        "pushed; use SGD or Adagrad without weight decay, or push the dense gradient");
  }
  if (layout_.blocks) {
    throw Error(
        "a stage-aware staleness policy needs the norm of whole variables' updates, so a sparse "
        "gradient cannot be pushed; choose another policy, or push the dense gradient");
  }
}

// Gathered, updated and scattered: the rule's own pass runs on the few parameters side by side. An
// update by another thread in between is lost, as any may be under Hogwild.
void Updater::apply_sparse_racy(float* buffer, const SparseGradient& gradient,
                                const Update& update) const {
  const auto& [indices, values, n] = gradient;
  thread_local std::vector<float> few;
  few.resize((1 + layout_.states) * n);
  for (std::size_t k = 0; k <= layout_.states; ++k) {
    kernels_.gather_racy(few.data() + k * n, buffer + k * layout_.stride(), indices, n);
  }
  const double scale = update.damping.factor * update.clip_factor;
  rule_.apply(few.data(), few.data(), n, values, 0, n, {update.t, scale});
  for (std::size_t k = 0; k <= layout_.states; ++k) {
    kernels_.scatter_racy(buffer + k * layout_.stride(), few.data() + k * n, indices, n);
  }
}

}  // namespace leashed
