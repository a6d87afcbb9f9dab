// On which day the hidden model of an id was drawn last: on each day after the first it is drawn
// anew with the same probability, a function of (key, id, number, day) alone.
#pragma once

#include <array>
#include <cstdint>

#include "leashed/base/philox.h"
#include "leashed/data/uniform.h"

namespace leashed {

class Drift {
 public:
  Drift(std::uint64_t key, double share, std::uint32_t day) : key_(key), share_(share), day_(day) {}

  std::uint32_t day() const { return day_; }
  std::uint32_t drawn(std::uint64_t id, std::uint32_t number = 0) const {
    if (share_ == 0) return 0;
    std::array<std::uint32_t, 4> words{};
    for (std::uint32_t day = day_; day > 0; --day) {
      if (day == day_ || day % 4 == 3) {
        words = philox(key_, id, number | std::uint64_t{day / 4} << 32);
      }
      if (words[day % 4] * kUnit32 < share_) return day;
    }
    return 0;
  }

 private:
  std::uint64_t key_;
  double share_;
  std::uint32_t day_;
};

}  // namespace leashed
