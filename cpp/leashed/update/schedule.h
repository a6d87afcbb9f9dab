// Learning-rate schedules: η as a function of t, the updates applied so far. A new one is a class
// and one line in schedule.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "leashed/base/choice.h"

namespace leashed {

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual double at(std::uint64_t t) const = 0;
  // What it never exceeds.
  virtual double largest() const = 0;
};

// The schedule `key` of a choice: a number, which is constant, or a choice of its own. `workers`
// is what `scaled` multiplies by.
std::unique_ptr<const Schedule> make_schedule(const Choice& choice, const std::string& key,
                                              std::size_t workers);

}  // namespace leashed
