#include "leashed/base/error.h"
#include "leashed/base/isa_table.h"
#include "leashed/model/loss.h"

// Every loss there is, in the order in which they are named: X(name) for `name_loss` in a file of
// losses/.
#define LEASHED_LOSSES(X) \
  X(softmax)              \
  X(sampled_softmax)      \
  X(bpr)                  \
  X(in_batch)             \
  X(log_loss)             \
  X(binary_cross_entropy) \
  X(hinge)                \
  X(modified_huber)       \
  X(squared_error)        \
  X(huber)

namespace leashed {

#define LEASHED_TABLE(name) LEASHED_ISA_TABLE(Loss, name##_loss)
LEASHED_LOSSES(LEASHED_TABLE)

namespace {

#define LEASHED_ENTRY(name) name##_loss,
constexpr const Loss& (*kLosses[])(Isa) = {LEASHED_LOSSES(LEASHED_ENTRY)};

}  // namespace

const Loss& find_loss(std::string_view name, std::size_t outputs, Isa isa) {
  for (const auto& loss_of : kLosses) {
    const Loss& loss = loss_of(isa);
    if (name != loss.name) continue;
    if (loss.kind == Classes::two_of_each && outputs < 2) {
      throw Error("the loss " + std::string(name) +
                  " takes a last layer with 2 outputs or more, this one has 1; log_loss is of one");
    }
    if (loss.outputs != 0 && outputs != loss.outputs) {
      throw Error("the loss " + std::string(name) + " takes a last layer with " +
                  std::to_string(loss.outputs) + (loss.outputs == 1 ? " output" : " outputs") +
                  ", this one has " + std::to_string(outputs));
    }
    return loss;
  }
  std::string known;
  for (const std::string& each : loss_names()) known += (known.empty() ? "" : ", ") + each;
  throw Error("loss must be one of " + known + ", got '" + std::string(name) + "'");
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const auto& loss_of : kLosses) names.emplace_back(loss_of(default_isa()).name);
  return names;
}

}  // namespace leashed
