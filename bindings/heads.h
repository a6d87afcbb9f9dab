// What is told of the labels that rows have.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "leashed/data/head_score.h"

namespace leashed {

// Of each label.
inline std::vector<double> each(const std::vector<HeadScore>& heads, double HeadScore::*what) {
  std::vector<double> values;
  for (const HeadScore& head : heads) values.push_back(head.*what);
  return values;
}

// Of those that can be told; NaN where none can.
inline double mean_of_known(const std::vector<double>& values) {
  double sum = 0, known = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    known += 1;
  }
  return known > 0 ? sum / known : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace leashed
