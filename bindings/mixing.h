// Whether the calling thread is within what a synchronisation asks of Python: a synchroniser of the
// user's, or what sums for it. That may be on the engine's own thread, or in a push.
#pragma once

#include <utility>

namespace leashed {

class Mixing {
 public:
  Mixing() : before_(std::exchange(inside(), true)) {}
  ~Mixing() { inside() = before_; }
  Mixing(const Mixing&) = delete;

  static bool& inside() {
    thread_local bool inside = false;
    return inside;
  }

 private:
  const bool before_;
};

}  // namespace leashed
