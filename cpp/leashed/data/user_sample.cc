#include "leashed/data/user_sample.h"

#include <algorithm>
#include <cmath>

namespace leashed {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr double kDeviations = 1.96;  // of a normal distribution, that 95% are within

// The finaliser of MurmurHash3: one to one, so that no two users become one. It leaves 0 as it is,
// which may well be everybody who is not known, and should not always be kept.
std::uint64_t hashed(std::uint64_t user) {
  user ^= 0x9e3779b97f4a7c15;
  user ^= user >> 33;
  user *= 0xff51afd7ed558ccd;
  user ^= user >> 33;
  user *= 0xc4ceb9fe1a85ec53;
  return user ^ user >> 33;
}

}  // namespace

void UserSample::add(std::span<const float> logits, const Targets& targets) {
  if (shared_) halve(std::max(halvings_, shared_->halvings()));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float weight = targets.weights ? targets.weights[i] : 1;
    if (weight == 0) continue;
    nan_ |= std::isnan(logits[i]);
    const std::uint64_t user = hashed(targets.users[i]);
    const bool kept = keep({user, logits[i], targets.labels[i] == 1 ? weight : -weight});
    if (!kept || !shared_) continue;
    ++uncounted_[UserLimit::outlives(user)];
    if (++uncounted_rows_ < at_once_) continue;
    shared_->count(uncounted_);
    uncounted_ = {};
    uncounted_rows_ = 0;
    halve(std::max(halvings_, shared_->halvings()));
  }
}

void UserSample::merge(const UserSample& other) {
  nan_ |= other.nan_;
  halve(std::max(halvings_, other.halvings_));
  for (const Row& row : other.rows_) keep(row);
}

// Its memory goes too: another of those that share it may need it next.
void UserSample::clear(unsigned halvings) {
  rows_ = std::vector<Row>();
  sorted_ = 0;
  nan_ = false;
  halvings_ = halvings;
}

void UserSample::sort() {
  const auto middle = rows_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  std::sort(middle, rows_.end());
  std::inplace_merge(rows_.begin(), middle, rows_.end());
  sorted_ = rows_.size();
}

bool UserSample::keep(const Row& row) {
  while (keeps(row.user) && rows_.size() >= most_) halve(halvings_ + 1);
  if (!keeps(row.user)) return false;
  rows_.push_back(row);
  return true;
}

void UserSample::halve(unsigned halvings) {
  if (halvings == halvings_) return;
  halvings_ = halvings;
  const auto middle = rows_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  const auto kept = std::partition_point(rows_.begin(), middle,
                                         [this](const Row& row) { return keeps(row.user); });
  sorted_ = static_cast<std::size_t>(kept - rows_.begin());
  std::erase_if(rows_, [this](const Row& row) { return !keeps(row.user); });
}

UserSample::Grouped UserSample::area_under_curves() {
  const double share = std::ldexp(1.0, -static_cast<int>(halvings_));
  if (nan_) return {kUndefined, kUndefined, 0, share};
  sort();
  // Over users, of the weight w and the AUC a: so that Σ w² (a − value)² comes of one pass.
  double w = 0, wa = 0, ww = 0, wwa = 0, wwaa = 0;
  std::uint64_t users = 0;
  for (std::size_t i = 0; i < rows_.size();) {
    const std::uint64_t user = rows_[i].user;
    double clicks = 0, others = 0, won = 0;
    while (i < rows_.size() && rows_[i].user == user) {
      double up = 0, down = 0;  // of one logit
      for (const float tied = rows_[i].logit;
           i < rows_.size() && rows_[i].user == user && rows_[i].logit == tied; ++i) {
        const double weight = rows_[i].weight;
        (weight > 0 ? up : down) += std::abs(weight);
      }
      won += up * (others + down / 2);
      clicks += up;
      others += down;
    }
    if (clicks == 0 || others == 0) continue;
    const double weight = clicks + others, auc = won / (clicks * others);
    ++users;
    w += weight;
    wa += weight * auc;
    ww += weight * weight;
    wwa += weight * weight * auc;
    wwaa += weight * weight * auc * auc;
  }
  if (users == 0) return {kUndefined, kUndefined, users, share};
  const double value = wa / w;
  if (halvings_ == 0) return {value, 0, users, share};
  if (users == 1) return {value, kUndefined, users, share};
  const double n = static_cast<double>(users);
  const double squares = std::max(0.0, wwaa - 2 * value * wwa + value * value * ww);
  const double deviation = std::sqrt((1 - share) * n / (n - 1) * squares) / w;
  return {value, kDeviations * deviation, users, share};
}

}  // namespace leashed
