// The order in which fragments go round a ring of members.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace leashed {

// The most bytes that a ring's frame has.
inline constexpr std::size_t kRingFragment = std::size_t{256} << 10;

// What a member sends or receives, fragment after fragment: the data's parts behind each other,
// from one on downwards.
class RingStream {
 public:
  RingStream(std::span<float> data, std::size_t parts, std::size_t first)
      : data_(data), parts_(parts), part_(first), at_(begin(first)) {}

  std::span<float> fragment() const {
    return data_.subspan(at_, std::min(kFloats, begin(part_ + 1) - at_));
  }
  // To the next; parts may be empty.
  void advance() {
    at_ += fragment().size();
    if (at_ < begin(part_ + 1)) return;
    part_ = (part_ + parts_ - 1) % parts_;
    at_ = begin(part_);
  }
  // Fragments of so many parts from here on; an empty part has one, which is empty.
  std::size_t fragments(std::size_t parts) const {
    std::size_t count = 0;
    for (std::size_t k = 0; k < parts; ++k) {
      const std::size_t part = (part_ + parts_ * parts - k) % parts_;
      const std::size_t size = begin(part + 1) - begin(part);
      count += std::max<std::size_t>(1, (size + kFloats - 1) / kFloats);
    }
    return count;
  }

 private:
  static constexpr std::size_t kFloats = kRingFragment / sizeof(float);

  std::size_t begin(std::size_t part) const {
    return data_.size() / parts_ * part + std::min(part, data_.size() % parts_);
  }

  const std::span<float> data_;
  const std::size_t parts_;
  std::size_t part_, at_;
};

}  // namespace leashed
