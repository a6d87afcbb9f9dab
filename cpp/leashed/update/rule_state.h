// A vector and a rule's state beside it, changed where they lie: what an optimizer keeps for the
// parameters that it is given. Threads may share one: each call has it alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "leashed/base/aligned.h"
#include "leashed/update/layout.h"
#include "leashed/update/rule.h"

namespace leashed {

class RuleState {
 public:
  // What lies before the first update: `theta`, copied.
  RuleState(std::unique_ptr<const Rule> rule, const float* theta, std::size_t dimension);

  std::size_t dimension() const { return layout_.dimension; }
  std::size_t states() const { return layout_.states; }

  // values[i] is the gradient of parameter begin + i, which has been updated so many times: bias
  // corrections count these. Parameters that no piece covers stay as they are, and their state, but
  // for SWAP's decay.
  struct Piece {
    const float* values;
    std::size_t begin, end;
    std::uint64_t updates;
  };
  void update(std::span<const Piece> gradient);
  // Of all parameters, in every update.
  void update(const float* gradient);

  // Another learning rate or the like; the state goes on.
  void set_rule(std::unique_ptr<const Rule> rule);

  // Updates made, by which learning rates are scheduled.
  std::uint64_t t() const;
  void set_t(std::uint64_t t);

  // Theta (0) or state k: a copy, and where it lies for good, for whoever reads and writes there
  // while nobody updates.
  void copy(std::size_t k, float* to) const;
  float* memory(std::size_t k) { return buffer_.data() + k * layout_.stride(); }

 private:
  void apply(std::span<const Piece> gradient);

  const Layout layout_;
  mutable std::mutex mutex_;
  // Under the lock:
  std::unique_ptr<const Rule> rule_;
  AlignedArray<float> buffer_;
  std::uint64_t t_ = 0;
};

}  // namespace leashed
