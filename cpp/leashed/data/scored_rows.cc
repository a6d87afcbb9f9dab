#include "leashed/data/scored_rows.h"

#include <cmath>

namespace leashed {

void ScoredRows::add(std::span<const float> logits, const Targets& targets) {
  clicks_.add(logits, targets);
  if (users_) users_->add(logits, targets);
}

void ScoredRows::merge(const ScoredRows& other) {
  clicks_.merge(other.clicks_);
  if (users_) users_->merge(*other.users_);
}

void ScoredRows::clear(const ScoredRows* like) {
  clicks_.clear();
  if (users_) users_->clear(like ? like->users_->halvings() : 0);
}

Scores ScoredRows::scores() {
  const auto [auc, auc_error] = clicks_.area_under_curve();
  Scores scores{static_cast<std::uint64_t>(clicks_.rows()),
                auc,
                auc_error,
                clicks_.log_loss(),
                clicks_.normalised_entropy(),
                clicks_.calibration(),
                std::nan(""),
                std::nan(""),
                0,
                0};
  if (!users_) return scores;
  const UserSample::Grouped grouped = users_->area_under_curves();
  scores.gauc = grouped.value;
  scores.gauc_error = grouped.error;
  scores.users = grouped.users;
  scores.user_share = grouped.share;
  return scores;
}

}  // namespace leashed
