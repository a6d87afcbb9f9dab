// What the disciplines share that keep one vector and change it in place: where it lies.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/discipline/discipline.h"
#include "leashed/discipline/held_copies.h"
#include "leashed/discipline/updater.h"
#include "leashed/sparse/lazy_shrink.h"

namespace leashed {

class InPlace : public Discipline {
 public:
  float* memory() override { return buffer_.data(); }
  void look(float* copy, const std::function<void(const float*)>& f) override;

 protected:
  explicit InPlace(const DisciplineContext& context)
      : updater_(context),
        dimension_(context.dimension),
        copies_(context.dimension),
        buffer_(updater_.layout().length()),
        snapshot_(updater_.layout().length()) {
    updater_.initialise(buffer_.data(), context);
  }

  // Theta lies at the start of the buffer.
  const float* theta() const { return buffer_.data(); }

  std::unique_ptr<Held> hold_live(std::uint64_t t) const {
    auto held = std::make_unique<Held>();
    held->view = {theta(), t};
    return held;
  }

  // As transform, part by part through racy kernels: what others add to a part meanwhile stays.
  void transform_parts(std::size_t begin, std::size_t end, const Transform& f);

  // Where decay was behind, it goes on from there.
  void go_on(LazyShrink& shrink, const Behind& behind) {
    if (!behind.shrink) return;
    std::copy_n(behind.theta, dimension_, buffer_.data());
    shrink.restore(*behind.shrink);
  }
  // Of the monitor's copy, which is at version t and whose decay is at `progress_`.
  DisciplineState state(std::uint64_t t, const LazyShrink& shrink) {
    if (!progress_.begun()) return {snapshot_.data(), t};
    behind_.assign(snapshot_.data(), snapshot_.data() + dimension_);
    shrink.complete(snapshot_.data(), progress_);
    return {snapshot_.data(), t, {behind_.data(), &progress_}};
  }

  const Updater updater_;
  const std::size_t dimension_;
  HeldCopies copies_;
  AlignedArray<float> buffer_;
  AlignedArray<float> snapshot_;  // the monitor's copy
  ShrinkProgress progress_;

 private:
  std::vector<float> behind_;  // the copy as it was
};

}  // namespace leashed
