// What is to happen in virtual time, in order: of one moment first by its kind, then by who it
// happens to, then as it was entered. Whole nanoseconds, so that the order is exact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

namespace leashed {

struct Moment {
  // Pushes come before pulls (READINGS, "State machines and time").
  enum class Kind : std::uint8_t {
    step,      // of an update or a read under way
    computed,  // a gradient
    ready,     // to read
    evaluate,
  };
  std::int64_t ns;
  Kind kind;
  std::uint32_t worker;
};

class Timeline {
 public:
  bool empty() const { return heap_.empty(); }
  const Moment& next() const { return heap_.front().moment; }
  void enter(const Moment& moment) {
    heap_.push_back({moment, entered_++});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Moment take() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Moment moment = heap_.back().moment;
    heap_.pop_back();
    return moment;
  }

 private:
  struct Entry {
    Moment moment;
    std::uint64_t number;
  };
  static bool later(const Entry& a, const Entry& b) {
    const auto order = [](const Entry& e) {
      return std::tuple(e.moment.ns, e.moment.kind, e.moment.worker, e.number);
    };
    return order(a) > order(b);
  }

  std::vector<Entry> heap_;
  std::uint64_t entered_ = 0;
};

}  // namespace leashed
