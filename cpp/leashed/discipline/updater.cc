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
    return;
  }
  std::fill_n(buffer, layout_.length(), 0.0f);
  std::copy_n(context.initial, layout_.dimension, buffer);
  for (std::size_t k = 1; k <= layout_.states; ++k) {
    std::fill_n(buffer + k * layout_.stride(), layout_.dimension, rule_.initial_state());
  }
}

AlignedArray<float> Updater::initial(const DisciplineContext& context) const {
  AlignedArray<float> buffer(layout_.length());
  initialise(buffer.data(), context);
  return buffer;
}

double Updater::factor(const float* current, std::size_t block, std::uint64_t tau) const {
  const double last_update = load(current + layout_.last_updates() + block);
  return staleness_.factor(static_cast<double>(tau) * staleness_.stage(last_update));
}

bool Updater::excludes(const float* current, std::uint64_t tau) const {
  if (!staleness_.excludes()) return false;
  if (layout_.blocks == 0) return staleness_.factor(static_cast<double>(tau)) == 0;
  for (std::size_t b = 0; b < layout_.blocks; ++b) {
    if (factor(current, b, tau) != 0) return false;
  }
  return true;
}

template <class F>
void Updater::for_each_block(F&& f) const {
  std::size_t begin = 0;
  for (std::size_t b = 0; b < layout_.blocks; ++b) {
    f(b, begin, block_ends_[b]);
    begin = block_ends_[b];
  }
}

void Updater::apply(float* next, const float* current, const float* gradient,
                    const Update& update) const {
  if (layout_.blocks == 0) {
    const double scale = staleness_.factor(static_cast<double>(update.tau)) * update.clip_factor;
    rule_.apply(next, current, layout_.stride(), gradient, 0, layout_.dimension,
                {update.t, scale, update.stores});
    return;
  }
  for_each_block([&](std::size_t b, std::size_t begin, std::size_t end) {
    const double factor = this->factor(current, b, update.tau);
    float* norm = next + layout_.last_updates() + b;
    if (factor != 0) {
      store(norm, rule_.apply(next, current, layout_.stride(), gradient, begin, end,
                              {update.t, factor * update.clip_factor, update.stores}, true));
    } else if (next != current) {  // this variable's gradient is left out: it stays as it is
      *norm = current[layout_.last_updates() + b];
      for (std::size_t k = 0; k <= layout_.states; ++k) {
        const std::size_t offset = k * layout_.stride();
        std::copy(current + offset + begin, current + offset + end, next + offset + begin);
      }
    }
  });
}

void Updater::apply_racy(float* buffer, const float* gradient, const Update& update) const {
  if (layout_.blocks == 0) {
    const double scale = staleness_.factor(static_cast<double>(update.tau)) * update.clip_factor;
    rule_.apply_racy(buffer, layout_.stride(), gradient, 0, layout_.dimension,
                     {update.t, scale, update.stores});
    return;
  }
  for_each_block([&](std::size_t b, std::size_t begin, std::size_t end) {
    const double factor = this->factor(buffer, b, update.tau);
    if (factor == 0) return;
    store(buffer + layout_.last_updates() + b,
          rule_.apply_racy(buffer, layout_.stride(), gradient, begin, end,
                           {update.t, factor * update.clip_factor, update.stores}, true));
  });
}

}  // namespace leashed
