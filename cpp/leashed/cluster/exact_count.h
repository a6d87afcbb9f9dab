// How often w has gone over the wire, of which some goes as it is and the rest as compression makes
// it.
#pragma once

#include <atomic>
#include <cstdint>

#include "leashed/base/relaxed.h"
#include "leashed/net/kernel_bytes.h"

namespace leashed {

// How many times the whole of w has gone each way, as the bytes say.
struct Transfers {
  double out = 0, in = 0;
};

// One thread counts, any may look on.
class ExactCount {
 public:
  // So much of what is sent, or has come, is values that compression has left as they are.
  void add(const Traffic& bytes) {
    out_.fetch_add(bytes.out, kRelaxed);
    in_.fetch_add(bytes.in, kRelaxed);
  }
  // all: the bytes that have gone. exact, encoded: those of one whole w each way, as it is and as
  // compression makes it.
  Transfers transfers(const Traffic& all, const Traffic& exact, const Traffic& encoded) const {
    return {whole(all.out, out_.load(kRelaxed), exact.out, encoded.out),
            whole(all.in, in_.load(kRelaxed), exact.in, encoded.in)};
  }

 private:
  static double whole(std::uint64_t all, std::uint64_t as_is, std::uint64_t exact,
                      std::uint64_t encoded) {
    const std::uint64_t others = all > as_is ? all - as_is : 0;
    return static_cast<double>(as_is) / static_cast<double>(exact) +
           static_cast<double>(others) / static_cast<double>(encoded);
  }

  std::atomic<std::uint64_t> out_{0}, in_{0};  // relaxed: counts, which hand nothing over
};

}  // namespace leashed
