// What hands out views: an engine, or a parameter vector by itself.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "leashed/discipline/open.h"

namespace leashed {

class Readable {
 public:
  virtual ~Readable() = default;
  virtual std::size_t dimension() const = 0;
  // Throws std::runtime_error where as many views are held as there may be.
  virtual std::unique_ptr<Held> hold() = 0;

 protected:
  // The same under a permit.
  template <class F>
  static std::unique_ptr<Held> hold_under(Permits& readers, const char* what, const F& hold) {
    if (!readers.take()) {
      throw std::runtime_error("too many views are alive at once; drop some, or make the " +
                               std::string(what) + " with more readers");
    }
    std::unique_ptr<Held> held;
    try {
      held = hold();
    } catch (...) {
      readers.give_back();
      throw;
    }
    held->under(readers);
    return held;
  }
};

}  // namespace leashed
