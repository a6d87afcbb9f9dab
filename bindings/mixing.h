// Whether the calling thread is within a synchroniser of the user's, which may be on the engine's
// own thread, or in a push.
#pragma once

namespace leashed {

class Mixing {
 public:
  Mixing() { inside() = true; }
  ~Mixing() { inside() = false; }
  Mixing(const Mixing&) = delete;

  static bool& inside() {
    thread_local bool inside = false;
    return inside;
  }
};

}  // namespace leashed
