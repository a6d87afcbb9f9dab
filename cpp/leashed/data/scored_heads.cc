#include "leashed/data/scored_heads.h"

#include <algorithm>
#include <cmath>

namespace leashed {

ScoredHeads::ScoredHeads(std::size_t heads, std::size_t kept, std::deque<UserLimit>* limits,
                         std::size_t at_once) {
  for (std::size_t k = 0; k < heads; ++k) {
    heads_.emplace_back(kept, limits ? &(*limits)[k] : nullptr, at_once);
  }
}

void ScoredHeads::add(const float* logits, std::size_t rows, const Targets& targets) {
  if (targets.labels) return heads_.front().add({logits, rows}, targets);
  const std::size_t heads = heads_.size();
  for (std::size_t k = 0; k < heads; ++k) {
    logits_.clear();
    labels_.clear();
    weights_.clear();
    users_.clear();
    for (std::size_t i = 0; i < rows; ++i) {
      const float value = targets.values[i * heads + k];
      if (std::isnan(value)) continue;
      logits_.push_back(logits[i * heads + k]);
      labels_.push_back(value == 1);
      if (targets.weights) weights_.push_back(targets.weights[i]);
      if (targets.users) users_.push_back(targets.users[i]);
    }
    Targets known(labels_.data());
    if (targets.weights) known.weights = weights_.data();
    if (targets.users) known.users = users_.data();
    heads_[k].add(logits_, known);
  }
}

void ScoredHeads::merge(const ScoredHeads& other) {
  for (std::size_t k = 0; k < heads_.size(); ++k) heads_[k].merge(other.heads_[k]);
}

void ScoredHeads::clear(const ScoredHeads* like) {
  for (std::size_t k = 0; k < heads_.size(); ++k)
    heads_[k].clear(like ? &like->heads_[k] : nullptr);
}

bool ScoredHeads::empty() const {
  return std::ranges::all_of(heads_, [](const ScoredRows& head) { return head.empty(); });
}

std::vector<Scores> ScoredHeads::scores() {
  std::vector<Scores> all;
  for (ScoredRows& head : heads_) all.push_back(head.scores());
  return all;
}

}  // namespace leashed
