// All that is told of rows that were scored: of a stream, in memory that does not grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "leashed/data/click_metrics.h"
#include "leashed/data/user_sample.h"

namespace leashed {

// What cannot be told is NaN: click_metrics.h and user_sample.h say when.
struct Scores {
  std::uint64_t rows;
  double auc, auc_error;
  double log_loss, normalised_entropy, calibration;
  double gauc, gauc_error;  // NaN where users are not known
  std::uint64_t users;      // that gauc is of
  double user_share;        // of all users, those that are kept
};

// One thread's; those of several are merged.
class ScoredRows {
 public:
  // kept: rows of users, at most; 0: users are not known. A limit, and how many rows are counted
  // there at once, as of UserSample.
  explicit ScoredRows(std::size_t kept, UserLimit* shared = nullptr, std::size_t at_once = 1) {
    if (kept > 0) users_.emplace(kept, shared, at_once);
  }

  void add(std::span<const float> logits, const Targets& targets);
  void merge(const ScoredRows& other);
  // Begins anew, without users whom `like` has let go.
  void clear(const ScoredRows* like = nullptr);
  bool knows_users() const { return users_.has_value(); }
  bool empty() const { return clicks_.rows() == 0; }
  Scores scores();

 private:
  ClickMetrics clicks_;
  std::optional<UserSample> users_;
};

}  // namespace leashed
