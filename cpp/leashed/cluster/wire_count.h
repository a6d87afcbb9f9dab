// Bytes over several connections, those that have ended included: as counted here, and as the
// kernel has.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "leashed/base/relaxed.h"
#include "leashed/net/connection.h"

namespace leashed {

// How many times the whole of w has gone each way, as the bytes say.
struct Transfers {
  double out = 0, in = 0;
};

// One thread counts, any may look on.
class WireCount {
 public:
  // Of one connection, what has been added up already.
  struct Seen {
    Traffic own, kernel;
  };

  // What has gone over the connection since it was seen last; to be called before it is closed.
  void add(const Connection& connection, Seen& seen) {
    const Traffic own{connection.sent(), connection.received()};
    add(own_, own, seen.own);
    if (const std::optional<Traffic> kernel = connection.kernel()) {
      add(kernel_, *kernel, seen.kernel);
    } else {
      uncounted_.store(true, kRelaxed);
    }
  }
  // So much of what is sent, or has come, is values that compression has left as they are.
  void add_exact(const Traffic& bytes) {
    exact_.out.fetch_add(bytes.out, kRelaxed);
    exact_.in.fetch_add(bytes.in, kRelaxed);
  }

  Traffic own() const { return own_.load(); }
  // Nothing where the kernel did not count a connection: it went through shared memory.
  std::optional<Traffic> kernel() const {
    if (uncounted_.load(kRelaxed)) return std::nullopt;
    return kernel_.load();
  }
  // exact, encoded: the bytes of one whole w each way, as it is and as compression makes it.
  Transfers transfers(const Traffic& exact, const Traffic& encoded) const {
    const Traffic all = own(), as_is = exact_.load();
    return {whole(all.out, as_is.out, exact.out, encoded.out),
            whole(all.in, as_is.in, exact.in, encoded.in)};
  }

 private:
  // Relaxed: counts, which hand nothing over.
  struct Sum {
    std::atomic<std::uint64_t> out{0}, in{0};
    Traffic load() const { return {out.load(kRelaxed), in.load(kRelaxed)}; }
  };

  static void add(Sum& sum, const Traffic& now, Traffic& seen) {
    // (The kernel's count of what is acknowledged never falls.)
    sum.out.fetch_add(now.out - seen.out, kRelaxed);
    sum.in.fetch_add(now.in - seen.in, kRelaxed);
    seen = now;
  }
  static double whole(std::uint64_t all, std::uint64_t as_is, std::uint64_t exact,
                      std::uint64_t encoded) {
    const std::uint64_t others = all > as_is ? all - as_is : 0;
    return static_cast<double>(as_is) / static_cast<double>(exact) +
           static_cast<double>(others) / static_cast<double>(encoded);
  }

  Sum own_, kernel_, exact_;
  std::atomic<bool> uncounted_{false};  // relaxed: likewise
};

}  // namespace leashed
