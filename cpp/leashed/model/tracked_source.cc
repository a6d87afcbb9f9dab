#include "leashed/model/tracked_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "leashed/base/relaxed.h"

namespace leashed {
namespace {

constexpr double kMomentum = 0.99;

std::size_t size_of(const std::vector<StatisticBlock>& blocks) {
  return blocks.empty() ? 0 : blocks.back().offset + blocks.back().size;
}

}  // namespace

struct TrackedSource::Seat {
  explicit Seat(std::size_t size) : values(size) {}

  std::atomic<std::uint64_t> turn{0};
  std::vector<std::atomic<float>> values;
  std::atomic<std::uint64_t> batches{0}, least{0}, begun{0}, gradients{0};

  // Both are the seat's owner's. Relaxed loads: of what it has stored itself.
  void count() {
    gradients.store(gradients.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void learn(const float* batch, const RunningStatistics& from, std::uint64_t share,
             std::uint64_t nearer) {
    constexpr auto kRelease = std::memory_order_release;  // with the acquires of read()
    const std::uint64_t now = turn.load(kRelaxed);
    std::uint64_t n = batches.load(kRelaxed);
    const bool first = n == 0;
    turn.store(now + 1, kRelaxed);  // seen by whoever sees a value of this turn
    if (first) begun.store(n = share, kRelease);
    batches.store(++n, kRelease);
    least.store(least.load(kRelaxed) + nearer, kRelease);
    count();
    const auto part =
        static_cast<float>((1 - kMomentum) / (1 - std::pow(kMomentum, static_cast<double>(n))));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float before = !first ? values[i].load(kRelaxed) : n > 1 ? from.values[i] : batch[i];
      values[i].store(before + part * (batch[i] - before), kRelease);
    }
    turn.store(now + 2, kRelease);
  }

  struct Counts {
    std::uint64_t batches, least, begun, gradients;
  };
  Counts read(std::vector<float>& to) const {
    constexpr auto kAcquire = std::memory_order_acquire;  // with the releases of learn()
    for (;;) {
      const std::uint64_t before = turn.load(kAcquire);
      if (before % 2 != 0) continue;
      const Counts counts{batches.load(kAcquire), least.load(kAcquire), begun.load(kAcquire),
                          gradients.load(kAcquire)};
      for (std::size_t i = 0; i < values.size(); ++i) to[i] = values[i].load(kAcquire);
      if (turn.load(std::memory_order_relaxed) == before) return counts;
    }
  }
};

struct TrackedSource::Own final : Workspace {
  Own(std::unique_ptr<Workspace> of_source, Seat& own, std::size_t size)
      : inner(std::move(of_source)), seat(own), batch(size) {}

  const std::unique_ptr<Workspace> inner;
  Seat& seat;
  std::vector<float> batch;
};

TrackedSource::TrackedSource(const GradientSource& source, std::size_t workers,
                             RunningStatistics begun)
    : source_(source),
      blocks_(source.statistics()),
      size_(size_of(blocks_)),
      begun_(std::move(begun)),
      share_(begun_.batches / std::max<std::size_t>(workers, 1)) {
  describe(source.described());
}
TrackedSource::~TrackedSource() = default;

std::unique_ptr<Workspace> TrackedSource::make_workspace() const {
  auto inner = source_.make_workspace();
  const std::lock_guard lock(mutex_);
  seats_.push_back(std::make_unique<Seat>(size_));
  return std::make_unique<Own>(std::move(inner), *seats_.back(), size_);
}

float TrackedSource::gradient(const float* theta, const BatchView& batch, float* gradient,
                              Workspace& workspace, const std::atomic<bool>& cancel) const {
  auto& own = static_cast<Own&>(workspace);
  BatchView told = batch;
  told.statistics = nullptr;
  told.own_statistics = own.batch.data();
  const float loss = source_.gradient(theta, told, gradient, *own.inner, cancel);
  if (cancel.load(std::memory_order_relaxed)) return loss;
  // What has overflowed would stay for good.
  const bool finite = std::isfinite(loss) && std::all_of(own.batch.begin(), own.batch.end(),
                                                         [](float x) { return std::isfinite(x); });
  if (batch.size < 2 || !finite) {
    own.seat.count();
    return loss;
  }
  std::uint64_t nearer = 0;
  for (const StatisticBlock& block : blocks_) {
    for (std::size_t i = block.offset; block.least > 0 && i < block.offset + block.size; ++i) {
      nearer += std::abs(own.batch[i]) < block.least;
    }
  }
  own.seat.learn(own.batch.data(), begun_, share_, nearer);
  return loss;
}

std::optional<RunningStatistics> TrackedSource::running() const {
  RunningStatistics all;
  all.least = begun_.least;
  std::vector<double> sums(size_);
  std::vector<float> one(size_);
  const auto add = [&](const std::vector<float>& values, std::uint64_t batches) {
    for (std::size_t i = 0; i < size_; ++i) {
      sums[i] += static_cast<double>(batches) * static_cast<double>(values[i]);
    }
    all.batches += batches;
  };
  std::uint64_t unclaimed = begun_.batches;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& seat : seats_) {
      const Seat::Counts counts = seat->read(one);
      all.gradients += counts.gradients;
      if (counts.batches == 0) continue;
      add(one, counts.batches);
      all.least += counts.least;
      unclaimed -= std::min(unclaimed, counts.begun);
    }
  }
  if (unclaimed > 0) add(begun_.values, unclaimed);
  if (all.batches == 0) return all;
  all.values.resize(size_);
  for (std::size_t i = 0; i < size_; ++i) {
    all.values[i] = static_cast<float>(sums[i] / static_cast<double>(all.batches));
  }
  return all;
}

Evaluation TrackedSource::evaluate(const float* theta, const BatchView& batch,
                                   Workspace& workspace) const {
  return source_.evaluate(theta, batch, *static_cast<Own&>(workspace).inner);
}

}  // namespace leashed
