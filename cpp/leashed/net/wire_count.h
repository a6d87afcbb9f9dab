// Bytes over several connections, those that have ended included: as counted here, and as the
// kernel has.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "leashed/base/relaxed.h"
#include "leashed/net/connection.h"

namespace leashed {

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

  Traffic own() const { return own_.load(); }
  // Nothing where the kernel did not count a connection: it went through shared memory.
  std::optional<Traffic> kernel() const {
    if (uncounted_.load(kRelaxed)) return std::nullopt;
    return kernel_.load();
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

  Sum own_, kernel_;
  std::atomic<bool> uncounted_{false};  // relaxed: likewise
};

// What several have counted together.
struct WireSum {
  Traffic own;
  std::optional<Traffic> kernel = Traffic{};  // nothing where one of them has nothing

  void add(const WireCount& count) {
    add(own, count.own());
    const std::optional<Traffic> more = count.kernel();
    if (kernel && more) {
      add(*kernel, *more);
    } else {
      kernel.reset();
    }
  }

 private:
  static void add(Traffic& sum, const Traffic& more) {
    sum.out += more.out;
    sum.in += more.in;
  }
};

}  // namespace leashed
