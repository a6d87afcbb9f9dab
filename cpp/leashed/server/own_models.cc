#include "leashed/server/own_models.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace leashed {

using modes::WorkerRule;

PulledModel pulled_model(const Grant& grant) {
  return {grant.n, grant.c, grant.t, grant.pulled ? grant.pulled.data() : nullptr};
}

OwnModels::OwnModels(const WorkerRule& rule, bool from_server, const DisciplineContext& context)
    : rule_(rule),
      from_server_(from_server),
      updater_(context),
      dimension_(context.dimension),
      whole_{0, context.dimension} {
  if (rule_.model != WorkerRule::Model::own) return;
  models_.resize(context.workers);
  for (Model& model : models_) model.buffer = updater_.initial(context);
}

void OwnModels::take(modes::Node node, const PulledModel& pulled,
                     std::span<const ShardSpan> spans) {
  Model& model = models_[node];
  const bool first = model.taken < dimension_;
  model.server_t = pulled.t;
  if (!from_server_ && !first) return;
  const bool whole = first || rule_.takes == WorkerRule::Takes::replace;
  const auto alpha = whole ? 1.0f : static_cast<float>(rule_.mixing.weight(pulled.n, pulled.c));
  if (alpha == 0) return;
  float* const own = model.buffer.data();
  const float* held = pulled.values;
  for (const ShardSpan& span : spans) {
    for (std::size_t i = span.begin; i < span.end; ++i) {
      own[i] = (1 - alpha) * own[i] + alpha * *held++;
    }
    if (first) model.taken += span.end - span.begin;
  }
}

void OwnModels::step(modes::Node node, const float* gradient) {
  Model& model = models_[node];
  const GradientPiece whole{gradient, 0, dimension_};
  const bool as_there = rule_.sends == WorkerRule::Sends::gradient;
  const std::uint64_t t = as_there ? std::max(model.server_t, model.t) : model.t;
  updater_.apply(model.buffer.data(), model.buffer.data(), {&whole, 1},
                 {t, {}, updater_.clip_factor({&whole, 1}), Stores::cached, t - model.t});
  ++model.t;
}

void OwnModels::renew(modes::Node node, const DisciplineContext& context, const float* theta,
                      bool granted) {
  AlignedArray<float> buffer = updater_.initial(context);
  std::copy_n(theta, dimension_, buffer.data());
  models_[node] = {std::move(buffer), 0, 0, granted ? dimension_ : 0};
}

void OwnModels::meet(std::span<const modes::Node> nodes) {
  const float* const all = mean(nodes);
  for (const modes::Node node : nodes) {
    std::copy_n(all, dimension_, models_[node].buffer.data());
    models_[node].taken = dimension_;  // who has met somebody takes no beginning any more
  }
}

const float* OwnModels::mean() {
  std::vector<modes::Node> all(models_.size());
  std::iota(all.begin(), all.end(), 0);
  return mean(all);
}

const float* OwnModels::mean(std::span<const modes::Node> nodes) {
  mean_.assign(dimension_, 0.0f);
  for (const modes::Node node : nodes) add(node);
  const auto size = static_cast<float>(nodes.size());
  for (float& value : mean_) value /= size;
  return mean_.data();
}

void OwnModels::visit(Archive& archive) {
  const Layout& layout = updater_.layout();
  archive.of_each(models_);
  for (Model& model : models_) {
    archive.require(model.taken <= dimension_);
    for (std::size_t k = 0; k <= layout.states; ++k) {
      archive.vector(model.buffer.data() + k * layout.stride(), dimension_);
    }
  }
}

std::vector<float> OwnModels::release() {
  std::vector<float> all;
  all.reserve(models_.size() * dimension_);
  for (Model& model : models_) {
    all.insert(all.end(), model.buffer.data(), model.buffer.data() + dimension_);
    model.buffer = {};  // so that all are not there twice
  }
  models_.clear();
  return all;
}

void OwnModels::add(modes::Node node) {
  const float* const own = models_[node].buffer.data();
  for (std::size_t i = 0; i < dimension_; ++i) mean_[i] += own[i];
}

}  // namespace leashed
