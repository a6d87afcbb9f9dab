// What stands behind a network's last layer: how its outputs are judged.
#pragma once

#include <string_view>

namespace leashed {

// With outputs o and, for rows of class c, z_k = 1 where k = c and 0 elsewhere (one output: z = c,
// of two classes), the loss of a row is
//   softmax        −log softmax(o)_c
//   log_loss       Σ_k log(1 + e^o_k) − z_k o_k: logistic regression, one class against the rest
//   hinge          Σ_k max(0, 1 − (2 z_k − 1) o_k): a linear support vector machine
//   squared_error  ½ (o − v)², one output, for rows of value v
enum class Head { softmax, log_loss, hinge, squared_error };

// Throws Error where there is none of that name.
Head parse_head(std::string_view name);

// Of a head over so many outputs; 0: it takes values.
inline std::size_t head_classes(Head head, std::size_t outputs) {
  if (head == Head::squared_error) return 0;
  return head != Head::softmax && outputs == 1 ? 2 : outputs;
}

// The largest second derivative of the loss with respect to an output; of hinge, which has none,
// what its slope changes by over the width of its margin.
inline double head_curvature(Head head) {
  return head == Head::log_loss ? 0.25 : head == Head::softmax ? 0.5 : 1;
}

}  // namespace leashed
