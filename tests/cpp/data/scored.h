// Rows with their logits, labels and weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/data/dataset_view.h"

struct Scored {
  std::vector<float> logits, weights;
  std::vector<std::int32_t> labels;

  std::size_t size() const { return logits.size(); }
  leashed::Targets targets(bool weighted) const {
    leashed::Targets t(labels.data());
    if (weighted) t.weights = weights.data();
    return t;
  }
};
