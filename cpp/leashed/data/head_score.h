// How well one of the labels that rows have is told (click_metrics.h).
#pragma once

#include <limits>

namespace leashed {

struct HeadScore {
  double auc = std::numeric_limits<double>::quiet_NaN();
  double normalised_entropy = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace leashed
