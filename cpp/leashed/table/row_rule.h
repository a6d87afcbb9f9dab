// A rule of row_rules.h with its settings: what an update of rows needs of it. Bias corrections and
// schedules go by t, the updates of the whole model (as torch.optim.SparseAdam); moments are those
// of the rows that are touched.
//
// Weight decay is lazy, too: of the rows that a gradient touches, as if the others' decay were
// none. SWAP is lazy: a row says of which period its squares are, ⌊t/T⌋, and has what it has missed
// made up for when it is next touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "leashed/base/choice.h"
#include "leashed/table/kernels.h"
#include "leashed/table/rows.h"
#include "leashed/update/rule.h"

namespace leashed {

class RowRule {
 public:
  // Throws Error where the rule, or one of its settings, is none for rows.
  explicit RowRule(const Choice& choice);

  // Of a row, θ included.
  std::size_t floats(std::size_t dim) const { return dim + (rowwise_ ? states_ : states_ * dim); }
  // What states hold before the first update.
  float initial_state() const { return rule_->initial_state(); }
  // `scale` is what gradients are multiplied by beside their staleness.
  Coefficients coefficients(std::uint64_t t) const {
    Coefficients c = rule_->coefficients({t});
    c.swaps = swaps();
    if (epsilon_ > 0) c.epsilon = epsilon_;
    return c;
  }
  RowPass pass() const { return pass_; }

  bool swaps() const { return swap_.period > 0; }
  // Modulo 2^16. A row that is touched again after 2^15 periods or more is decayed by what is left
  // of them modulo 2^16, or not at all.
  std::uint16_t period(std::uint64_t t) const {
    return static_cast<std::uint16_t>(t / swap_.period);
  }
  // Whether the one period comes after the other.
  static bool after(std::uint16_t period, std::uint16_t other) {
    const auto ahead = static_cast<std::uint16_t>(period - other);
    return ahead != 0 && ahead < kBehind;
  }
  // What the row's squares are to be multiplied by, in that period; asked of any thread, and told
  // exactly one, whoever comes first.
  float keep(RowHead& head, std::uint16_t period) const;

 private:
  struct Entry;
  // Threads that are not that far ahead of another are behind it.
  static constexpr std::uint16_t kBehind = 0x8000;

  std::unique_ptr<const Rule> rule_;
  RowPass pass_;
  std::size_t states_;
  bool rowwise_;
  float epsilon_ = 0;  // of Adam, which on rows is torch.optim.SparseAdam: it does not correct ε
  Swap swap_;
};

}  // namespace leashed
