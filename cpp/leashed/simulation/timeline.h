// What is to happen in virtual time, in order: of one moment first by its kind, then by who it
// happens to, then as it was entered. Whole nanoseconds, so that the order is exact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

namespace leashed {

template <class Kind>
struct Moment {
  std::int64_t ns;
  Kind kind;
  std::uint32_t worker;
  std::uint32_t life = 0;  // of the worker, where it matters (membership.h)
};

template <class Kind>
class Timeline {
 public:
  bool empty() const { return heap_.empty(); }
  const Moment<Kind>& next() const { return heap_.front().moment; }
  void enter(const Moment<Kind>& moment) {
    heap_.push_back({moment, entered_++});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Moment<Kind> take() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Moment<Kind> moment = heap_.back().moment;
    heap_.pop_back();
    return moment;
  }

 private:
  struct Entry {
    Moment<Kind> moment;
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
