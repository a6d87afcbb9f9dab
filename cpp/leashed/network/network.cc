#include "leashed/network/network.h"

#include <algorithm>
#include <optional>

#include "leashed/base/aligned.h"
#include "leashed/model/dense_chain.h"
#include "leashed/model/gather.h"
#include "leashed/model/head_pass.h"
#include "leashed/model/micro_batches.h"
#include "leashed/model/penalty.h"
#include "leashed/model/row_stride.h"
#include "leashed/network/plan.h"
#include "leashed/network/spatial_pass.h"

namespace leashed {
namespace {

// One thread's: the dense stages, and what leads to and from them.
struct NetworkWorkspace final : Workspace {
  NetworkWorkspace(const Plan& plan, const Loss& loss, Isa isa)
      : input(kMicroBatch * row_stride(plan.flat)),
        logits(plan.dense.empty() ? 0 : kMicroBatch * row_stride(plan.classes)),
        head(loss, plan.classes, kMicroBatch) {
    if (!plan.dense.empty()) {
      dense.emplace(plan.dense, plan.dense_input_gradient(0), isa, kMicroBatch);
    }
    if (!plan.spatial.empty()) spatial.emplace(plan, isa, kMicroBatch);
  }

  const float* outputs() const { return dense ? logits.data() : input.data(); }

  AlignedArray<float> input, logits;  // [rows][plan.flat], [rows][plan.classes], with row_stride()
  std::optional<SpatialPass> spatial;
  std::optional<DenseChain> dense;
  HeadPass head;
};

}  // namespace

struct Network::Plan : leashed::Plan {
  Plan(Shape input, const std::vector<Layer>& layers, Isa level, std::string_view last,
       double penalty)
      : leashed::Plan(input, layers, level),
        isa(level),
        judge(find_loss(last, classes, level)),
        l2(penalty) {}

  // Rows → outputs.
  void forward(const float* theta, const float* const* rows, std::size_t count,
               NetworkWorkspace& own, RowsAhead& ahead) const {
    const std::size_t stride = row_stride(flat);
    if (own.spatial) {
      own.spatial->forward(theta, rows, count, own.input.data(), stride);
    } else {
      gather(rows, count, features, own.input.data(), stride);
    }
    if (own.dense) {
      own.dense->forward(theta, count, own.input.data(), stride, own.logits.data(),
                         own.head.stride(), ahead);
    }
  }

  // Micro-batches are multiples of this many rows where they can be.
  std::size_t multiple(const NetworkWorkspace& workspace) const {
    return workspace.spatial ? workspace.spatial->lanes() : 1;
  }

  const Isa isa;
  const Loss& judge;
  const double l2;
};

Network::Network(Shape input, const std::vector<Layer>& layers, Isa isa, std::string_view loss,
                 double l2)
    : plan_(std::make_unique<Plan>(input, layers, isa, loss, l2)) {
  describe({.dimension = plan_->dimension,
            .features = plan_->features,
            .classes = plan_->judge.classes(plan_->classes),
            .values = plan_->judge.values(plan_->classes),
            .gives_logits = leashed::gives_logits(plan_->judge, plan_->classes),
            .block_ends = ends_of(plan_->parameters, plan_->dimension)});
}
Network::~Network() = default;

std::size_t Network::outputs() const { return plan_->classes; }
const std::vector<ParameterBlock>& Network::parameters() const { return plan_->parameters; }
std::vector<DenseStage> Network::dense_stages() const {
  return plan_->spatial.empty() ? plan_->dense : std::vector<DenseStage>();
}
double Network::flops_per_example() const { return plan_->flops; }

std::unique_ptr<Workspace> Network::make_workspace() const {
  return std::make_unique<NetworkWorkspace>(*plan_, plan_->judge, plan_->isa);
}

float Network::gradient(const float* theta, const BatchView& batch, float* gradient,
                        Workspace& workspace, const std::atomic<bool>& cancel) const {
  auto& own = static_cast<NetworkWorkspace&>(workspace);
  const float scale = 1.0f / static_cast<float>(batch.size);
  const bool spatial_gradient = plan_->first_trained < plan_->spatial.size();
  const std::size_t spatial_parameters =
      plan_->dense.empty() ? plan_->dimension : plan_->dense.front().weight;
  std::fill_n(gradient, spatial_parameters, 0.0f);
  if (own.dense) own.dense->prepare_backward(theta);

  double loss = 0;
  for_each_micro_batch(batch.size, plan_->multiple(own), [&](std::size_t first, std::size_t count) {
    if (cancel.load(std::memory_order_relaxed)) return false;
    RowsAhead ahead = rows_after(batch, first + count, features());
    plan_->forward(theta, batch.rows + first, count, own, ahead);
    if (batch.logits) own.head.logits(own.outputs(), count, batch.logits + first * plan_->classes);
    loss += own.head.loss(own.outputs(), count, batch.targets.from(first), scale);
    float* d_flat = own.head.residuals();
    if (own.dense) {
      own.dense->backward({.rows = count,
                           .in = own.input.data(),
                           .in_stride = row_stride(plan_->flat),
                           .out = own.logits.data(),
                           .out_stride = own.head.stride(),
                           .d_out = own.head.residuals(),
                           .d_in = own.input.data(),
                           .adds_d_in = false,
                           .gradient = gradient,
                           .accumulate = first > 0},
                          ahead);
      d_flat = own.input.data();
    }
    if (spatial_gradient) {
      own.spatial->backward(theta, d_flat, row_stride(plan_->flat), count, gradient);
    }
    return true;
  });
  const double penalty =
      plan_->l2 > 0 ? penalise(plan_->l2, plan_->parameters, theta, gradient) : 0;
  return static_cast<float>(loss / static_cast<double>(batch.size) + penalty);
}

Evaluation Network::evaluate(const float* theta, const BatchView& batch,
                             Workspace& workspace) const {
  auto& own = static_cast<NetworkWorkspace&>(workspace);
  RowsAhead none;
  Evaluation sums;
  sums.rows = batch.size;
  for_each_micro_batch(batch.size, plan_->multiple(own), [&](std::size_t first, std::size_t count) {
    const Targets targets = batch.targets.from(first);
    plan_->forward(theta, batch.rows + first, count, own, none);
    if (batch.logits) own.head.logits(own.outputs(), count, batch.logits + first * plan_->classes);
    sums.loss_sum += own.head.loss(own.outputs(), count, targets, 1);
    sums.correct += own.head.correct(own.outputs(), count, targets);
    return true;
  });
  return sums;
}

void Network::predict(const float* theta, const float* const* rows, std::size_t size,
                      float* predictions, Workspace& workspace) const {
  auto& own = static_cast<NetworkWorkspace&>(workspace);
  RowsAhead none;
  for_each_micro_batch(size, plan_->multiple(own), [&](std::size_t first, std::size_t count) {
    plan_->forward(theta, rows + first, count, own, none);
    own.head.predict(own.outputs(), count, predictions + first * plan_->classes);
    return true;
  });
}

}  // namespace leashed
