// Whether an update stores through the caches or past them, to memory.
//
// Before a core can store to a line that another core has, it must take the line from it. Between
// cores that share a cache that costs little, and past the caches the next reader would have to
// fetch the vector from memory. Between cores that share none it takes several times as long as the
// whole update. Which of the two it is depends on the machine, and in a virtual one on the moment.
// So it is measured while training: at intervals all workers store one way for some updates, then
// the other way, and in between each the way that has been sooner done. The arithmetic is the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace leashed {

enum class Stores { cached, streamed };

// One worker's choice.
class StoreChoice {
 public:
  // For a vector of `length` floats that so many workers update. One worker alone, or a vector that
  // passes between the cores in no time, always stores through the caches.
  StoreChoice(std::size_t workers, std::size_t length)
      : trial_(workers > 1 && length >= kShortest ? kTrial * workers : 0) {}

  // For the update of version t.
  Stores at(std::uint64_t t) const {
    if (trial_ == 0) return Stores::cached;
    const std::uint64_t phase = t % (kPeriod * trial_);
    if (phase < trial_) return Stores::cached;
    if (phase < 2 * trial_) return Stores::streamed;
    return worth(seconds_[0], seconds_[1]) ? Stores::streamed : Stores::cached;
  }

  // How long that update took.
  void took(std::uint64_t t, double seconds) {
    if (trial_ == 0) return;
    // Until all workers store the same way, an update is not what it would be if they did.
    const std::uint64_t phase = t % (kPeriod * trial_);
    if (phase % trial_ < trial_ / 2 && phase < 3 * trial_) return;
    double& known = seconds_[static_cast<std::size_t>(at(t))];
    // Up by little at a time: a thread that was interrupted tells nothing.
    known = known > 0 ? std::min(seconds, kRise * known) : seconds;
  }

 private:
  static constexpr std::size_t kShortest = 8192;
  static constexpr std::uint64_t kTrial = 16, kPeriod = 128;
  static constexpr double kRise = 1.15;
  // Streaming must be so many times as fast to make up for the reads from memory.
  static bool worth(double cached, double streamed) { return cached > 3 * streamed; }

  std::uint64_t trial_;
  double seconds_[2] = {0, 0};  // by Stores
};

}  // namespace leashed
