// What a row begins with: a function of (seed, table, id), so the same whoever inserts it, and
// whenever.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leashed/base/choice.h"

namespace leashed {

class Initial {
 public:
  // zeros; constant (value); uniform (bound): from −bound on, below bound; normal (sigma).
  Initial(const Choice& choice, std::uint64_t seed, std::uint32_t table);

  void operator()(std::uint64_t id, float* theta, std::size_t dim) const;
  bool zero() const { return kind_ == Kind::constant && size_ == 0; }

 private:
  enum class Kind { constant, uniform, normal };

  Kind kind_;
  float size_;
  std::uint64_t seed_, table_;
};

}  // namespace leashed
