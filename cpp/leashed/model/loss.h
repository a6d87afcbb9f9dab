// How the outputs of a model's last layer are judged. A loss is one struct, in a file of its own in
// losses/ and on one line of losses.cc; it takes no settings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leashed/base/isa.h"
#include "leashed/data/dataset_view.h"

namespace leashed {

// none, two_of_each: rows are to give values.
enum class Classes { none, one_each, two_of_one, two_of_each };

struct Loss {
  const char* name;
  // How many an output stands for; of `two_of_one`, one output tells two by its sign, and several
  // stand for one each; of `two_of_each`, each output tells the two of a label of its own, which is
  // a value of 0 or 1, or NaN where it is not known.
  Classes kind;
  std::size_t outputs = 0;  // that it takes; 0: any number
  // The largest second derivative of a row's loss with respect to an output; where there is none,
  // what the slope changes by.
  double curvature;

  // Outputs [rows][n] with row stride ld → scale times the derivatives of the rows' losses with
  // respect to them, same layout (`out` may be `outputs`). Returns the sum of the losses, unscaled;
  // NaN if an output is. Both are weighted.
  double (*residuals)(const float* outputs, float* out, std::size_t rows, std::size_t n,
                      std::size_t ld, const Targets& targets, float scale);
  // The same of one output, [rows], in place; the sum of the losses goes to *loss where one is
  // given, and that of the outputs is returned. Writes up to the next multiple of 16. Null:
  // residuals() is as good.
  float (*residuals_alone)(float* outputs, std::size_t rows, const Targets& targets,
                           double* loss) = nullptr;
  // Outputs → what a prediction is, in place. Null: the outputs themselves.
  void (*predict)(float* outputs, std::size_t rows, std::size_t n, std::size_t ld) = nullptr;
  // How many rows of these outputs are classified right. Null: rows give values.
  std::uint64_t (*correct)(const float* outputs, std::size_t rows, std::size_t n, std::size_t ld,
                           const std::int32_t* labels) = nullptr;

  // Of so many outputs; 0: rows give values.
  std::size_t classes(std::size_t n) const {
    if (kind == Classes::none || kind == Classes::two_of_each) return 0;
    return kind == Classes::two_of_one && n == 1 ? 2 : n;
  }
  // How many values rows are to give, where they give any.
  std::size_t values(std::size_t n) const { return classes(n) == 0 ? n : 1; }
};

// Whether each of so many outputs of a model with that loss is the logit of label 1 of two, a label
// of its own.
inline bool gives_logits(const Loss& loss, std::size_t outputs) {
  return loss.kind == Classes::two_of_each ||
         (outputs == 1 && loss.name == std::string_view("log_loss"));
}
// That loss, for a model of so many outputs. Throws Error where there is none of that name, or it
// takes another number of outputs.
const Loss& find_loss(std::string_view name, std::size_t outputs, Isa isa);
std::vector<std::string> loss_names();

}  // namespace leashed
