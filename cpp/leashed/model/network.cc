#include "leashed/model/network.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include "leashed/model/dense_pass.h"
#include "leashed/model/plan.h"
#include "leashed/model/spatial_pass.h"

namespace leashed {
namespace {

// A batch is worked through in micro-batches of at most so many rows: few enough for activations to
// stay in the second-level cache and for a cancelled gradient to end soon, many enough for the
// weights and their gradient, read and written once for each, not to count.
constexpr std::size_t kMicroBatch = 64;

struct NetworkWorkspace final : Workspace {
  NetworkWorkspace(const Plan& plan, const Loss& loss, Isa isa)
      : dense(plan, loss, isa, kMicroBatch) {
    if (!plan.spatial.empty()) spatial.emplace(plan, isa, kMicroBatch);
  }

  DensePass dense;
  std::optional<SpatialPass> spatial;
};

// Calls work(first, count) for each micro-batch, all of nearly one size, until it returns false.
template <class Work>
void for_each_micro_batch(std::size_t rows, std::size_t multiple, Work work) {
  const std::size_t batches = (rows + kMicroBatch - 1) / kMicroBatch;
  for (std::size_t first = 0, i = 0; first < rows; ++i) {
    const std::size_t share = (rows - first + batches - i - 1) / (batches - i);
    const std::size_t count = std::min(rows - first, (share + multiple - 1) / multiple * multiple);
    if (!work(first, count)) return;
    first += count;
  }
}

}  // namespace

struct Network::Plan : leashed::Plan {
  Plan(Shape input, const std::vector<Layer>& layers, Isa level, std::string_view last,
       double penalty)
      : leashed::Plan(input, layers, level),
        isa(level),
        judge(find_loss(last, classes, level)),
        l2(penalty) {}

  // Rows → logits.
  void forward(const float* theta, const float* const* rows, std::size_t count,
               NetworkWorkspace& workspace) const {
    DensePass& pass = workspace.dense;
    if (workspace.spatial) {
      workspace.spatial->forward(theta, rows, count, pass.input(), pass.input_stride());
    } else {
      gather(rows, count, pass.input(), pass.input_stride());
    }
    pass.forward(theta, count);
  }

  // Rows → out, row-major with that stride.
  void gather(const float* const* rows, std::size_t count, float* out, std::size_t stride) const {
    constexpr std::size_t kLine = kCacheLine / sizeof(float);
    constexpr std::size_t kAhead = 2;  // rows; the second-level cache can wait for more of them
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) {
        const float* next = rows[i + kAhead];
        for (std::size_t j = 0; j < features; j += kLine) __builtin_prefetch(next + j, 0, 2);
      }
      std::memcpy(out + i * stride, rows[i], features * sizeof(float));
    }
  }

  // Micro-batches are multiples of this many rows where they can be.
  std::size_t multiple(const NetworkWorkspace& workspace) const {
    return workspace.spatial ? workspace.spatial->lanes() : 1;
  }

  // Adds the penalty's gradient, and returns the penalty.
  double penalise(const float* theta, float* gradient) const {
    double squares = 0;
    for (const ParameterBlock& block : parameters) {
      if (block.shape.size() == 1) continue;  // a bias
      const std::size_t size = std::accumulate(block.shape.begin(), block.shape.end(),
                                               std::size_t{1}, std::multiplies<>());
      for (std::size_t i = block.offset; i < block.offset + size; ++i) {
        gradient[i] += static_cast<float>(l2) * theta[i];
        squares += double{theta[i]} * double{theta[i]};
      }
    }
    return 0.5 * l2 * squares;
  }

  const Isa isa;
  const Loss& judge;
  const double l2;
};

Network::Network(Shape input, const std::vector<Layer>& layers, Isa isa, std::string_view loss,
                 double l2)
    : plan_(std::make_unique<Plan>(input, layers, isa, loss, l2)) {}
Network::~Network() = default;

std::size_t Network::dimension() const { return plan_->dimension; }
std::size_t Network::features() const { return plan_->features; }
std::vector<std::size_t> Network::block_ends() const {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i < plan_->parameters.size(); ++i) {
    ends.push_back(plan_->parameters[i].offset);
  }
  ends.push_back(plan_->dimension);
  return ends;
}
std::size_t Network::outputs() const { return plan_->classes; }
std::size_t Network::classes() const { return plan_->judge.classes(plan_->classes); }
const std::vector<ParameterBlock>& Network::parameters() const { return plan_->parameters; }
double Network::flops_per_example() const { return plan_->flops; }

std::unique_ptr<Workspace> Network::make_workspace() const {
  return std::make_unique<NetworkWorkspace>(*plan_, plan_->judge, plan_->isa);
}

float Network::gradient(const float* theta, const BatchView& batch, float* gradient,
                        Workspace& workspace, const std::atomic<bool>& cancel) const {
  auto& own = static_cast<NetworkWorkspace&>(workspace);
  DensePass& pass = own.dense;
  const float scale = 1.0f / static_cast<float>(batch.size);
  const bool spatial_gradient = plan_->first_trained < plan_->spatial.size();
  const std::size_t spatial_parameters =
      plan_->dense.empty() ? plan_->dimension : plan_->dense.front().weight;
  std::fill_n(gradient, spatial_parameters, 0.0f);
  pass.prepare_backward(theta);

  double loss = 0;
  for_each_micro_batch(batch.size, plan_->multiple(own), [&](std::size_t first, std::size_t count) {
    if (cancel.load(std::memory_order_relaxed)) return false;
    const Targets targets = batch.targets.from(first);
    if (const std::size_t next = first + count; next < batch.size) {
      pass.look_ahead(batch.rows + next, std::min(kMicroBatch, batch.size - next), features());
    } else {
      pass.look_ahead(batch.next_rows, batch.next_rows ? std::min(kMicroBatch, batch.size) : 0,
                      features());
    }
    plan_->forward(theta, batch.rows + first, count, own);
    loss += pass.loss(count, targets, scale);
    const float* d_input = pass.backward(count, gradient, first > 0);
    if (spatial_gradient) {
      own.spatial->backward(theta, d_input, pass.input_stride(), count, gradient);
    }
    return true;
  });
  pass.look_ahead(nullptr, 0, 0);
  const double penalty = plan_->l2 > 0 ? plan_->penalise(theta, gradient) : 0;
  return static_cast<float>(loss / static_cast<double>(batch.size) + penalty);
}

Evaluation Network::evaluate(const float* theta, const BatchView& batch,
                             Workspace& workspace) const {
  auto& own = static_cast<NetworkWorkspace&>(workspace);
  DensePass& pass = own.dense;
  Evaluation sums;
  sums.rows = batch.size;
  for_each_micro_batch(batch.size, plan_->multiple(own), [&](std::size_t first, std::size_t count) {
    const Targets targets = batch.targets.from(first);
    plan_->forward(theta, batch.rows + first, count, own);
    sums.loss_sum += pass.loss(count, targets, 1);
    sums.correct += pass.correct(count, targets);
    return true;
  });
  return sums;
}

void Network::predict(const float* theta, const float* const* rows, std::size_t size,
                      float* predictions, Workspace& workspace) const {
  auto& own = static_cast<NetworkWorkspace&>(workspace);
  const DensePass& pass = own.dense;
  for_each_micro_batch(size, plan_->multiple(own), [&](std::size_t first, std::size_t count) {
    plan_->forward(theta, rows + first, count, own);
    const float* judged = own.dense.predictions(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::copy_n(judged + i * pass.logits_stride(), plan_->classes,
                  predictions + (first + i) * plan_->classes);
    }
    return true;
  });
}

}  // namespace leashed
