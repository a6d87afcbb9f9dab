#include "leashed/update/rule_state.h"

#include <algorithm>

#include "leashed/base/error.h"

namespace leashed {

RuleState::RuleState(std::unique_ptr<const Rule> rule, const float* theta, std::size_t dimension)
    : layout_{dimension, rule->states()}, rule_(std::move(rule)), buffer_(layout_.length()) {
  rule_->initialise(buffer_.data(), layout_, theta);
}

void RuleState::update(std::span<const Piece> gradient) {
  std::size_t last = 0;
  for (const Piece& piece : gradient) {
    if (piece.begin < last || piece.end < piece.begin || piece.end > layout_.dimension) {
      throw Error("pieces must ascend within the parameters");
    }
    last = piece.end;
  }
  const std::lock_guard lock(mutex_);
  apply(gradient);
}

void RuleState::update(const float* gradient) {
  const std::lock_guard lock(mutex_);
  const Piece whole{gradient, 0, layout_.dimension, t_};
  apply({&whole, 1});
}

void RuleState::apply(std::span<const Piece> gradient) {
  double clip_factor = 1;
  if (rule_->clips_norm()) {
    double squares = 0;
    for (const Piece& piece : gradient) {
      squares += rule_->sum_of_squares(piece.values, 0, piece.end - piece.begin);
    }
    clip_factor = rule_->clip_factor(squares);
  }
  float* buffer = buffer_.data();
  std::size_t done = 0;
  for (const Piece& piece : gradient) {
    rule_->leave(buffer, buffer, layout_.stride(), done, piece.begin, {t_});
    const std::uint64_t missed = t_ - std::min(piece.updates, t_);
    rule_->apply(buffer, buffer, layout_.stride(), piece.values - piece.begin, piece.begin,
                 piece.end, {t_, clip_factor, Stores::cached, missed});
    done = piece.end;
  }
  rule_->leave(buffer, buffer, layout_.stride(), done, layout_.dimension, {t_});
  ++t_;
}

void RuleState::set_rule(std::unique_ptr<const Rule> rule) {
  if (rule->states() != layout_.states) throw Error("the rule keeps other state");
  const std::lock_guard lock(mutex_);
  rule_ = std::move(rule);
}

std::uint64_t RuleState::t() const {
  const std::lock_guard lock(mutex_);
  return t_;
}
void RuleState::set_t(std::uint64_t t) {
  const std::lock_guard lock(mutex_);
  t_ = t;
}

void RuleState::copy(std::size_t k, float* to) const {
  const std::lock_guard lock(mutex_);
  std::copy_n(buffer_.data() + k * layout_.stride(), layout_.dimension, to);
}

}  // namespace leashed
