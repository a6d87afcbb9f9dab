// Weight decay under updates that touch few parameters each. Multiplying all of them every time
// would take longer than the update, so each is multiplied now and then by the product of what it
// missed: a part of the vector after each run of updates, in turn, so that every parameter has had
// the same decay in the end, and at most kPart parameters are gone through for a run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "leashed/update/kernels.h"

namespace leashed {

class LazyShrink {
 public:
  // Of the parameters [begin, end).
  LazyShrink(std::size_t begin, std::size_t end)
      : begin_(begin), end_(end), done_(end > begin ? (end - begin + kPart - 1) / kPart : 0) {}

  // After updates that shrink theta by e^log_factor. Other threads may use it meanwhile.
  void add(double log_factor, float* theta) {
    if (log_factor == 0 || done_.empty()) return;
    total_ += log_factor;
    catch_up(next_, theta);
    next_ = (next_ + 1) % done_.size();
  }
  // All parts.
  void finish(float* theta) {
    for (std::size_t part = 0; part < done_.size(); ++part) catch_up(part, theta);
  }

 private:
  static constexpr std::size_t kPart = 4096;

  void catch_up(std::size_t part, float* theta) {
    if (done_[part] == total_) return;
    const std::size_t begin = begin_ + part * kPart;
    const auto factor = static_cast<float>(std::exp(total_ - done_[part]));
    update_kernels().scale_racy(theta + begin, factor, std::min(kPart, end_ - begin));
    done_[part] = total_;
  }

  std::size_t begin_, end_;
  double total_ = 0;
  std::vector<double> done_;  // the total that each part has had
  std::size_t next_ = 0;
};

}  // namespace leashed
