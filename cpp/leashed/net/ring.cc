#include "leashed/net/ring.h"

#include <algorithm>
#include <memory>

namespace leashed {
namespace {

constexpr std::size_t kFloats = kRingFragment / sizeof(float);

// What a member sends and receives, fragment after fragment: the parts behind each other, from one
// on downwards. Each is received, and but for the last sent on, members − 1 times in each of two
// rounds.
class Stream {
 public:
  Stream(std::span<float> data, std::size_t members, std::size_t first)
      : data_(data), members_(members), part_(first) {
    at_ = begin(part_);
  }
  std::span<float> fragment() const {
    return data_.subspan(at_, std::min(kFloats, begin(part_ + 1) - at_));
  }
  // To the next; parts may be empty.
  void advance() {
    at_ += fragment().size();
    if (at_ < begin(part_ + 1)) return;
    part_ = (part_ + members_ - 1) % members_;
    at_ = begin(part_);
  }
  // Fragments of so many parts from here on; an empty part has one, which is empty.
  std::size_t fragments(std::size_t parts) const {
    std::size_t count = 0;
    for (std::size_t k = 0; k < parts; ++k) {
      const std::size_t part = (part_ + members_ * parts - k) % members_;
      const std::size_t size = begin(part + 1) - begin(part);
      count += std::max<std::size_t>(1, (size + kFloats - 1) / kFloats);
    }
    return count;
  }

 private:
  std::size_t begin(std::size_t part) const {
    return data_.size() / members_ * part + std::min(part, data_.size() % members_);
  }

  const std::span<float> data_;
  const std::size_t members_;
  std::size_t part_, at_;
};

void add(std::span<float> sum, const float* values) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

}  // namespace

void all_reduce(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                std::span<float> data, const Deadline& deadline) {
  if (place.next.sending()) throw Error("a frame is still being sent; a round cannot begin");
  const std::size_t others = place.members - 1;
  Stream sent(data, place.members, place.rank);
  Stream received(data, place.members, (place.rank + others) % place.members);
  const std::size_t own = sent.fragments(1), added = received.fragments(others);
  const std::size_t to_send = sent.fragments(2 * others);
  const std::size_t to_receive = received.fragments(2 * others);
  const auto scratch = std::make_unique_for_overwrite<float[]>(kFloats);

  std::size_t gone = 0, come = 0;
  const auto correlation = [round](std::size_t fragment) {
    return std::uint64_t{round} << 32 | fragment;
  };
  const Connection::Place into = [&](const FrameHeader& header) {
    const std::span<float> fragment = received.fragment();
    if (header.kind != kind || header.correlation != correlation(come) ||
        header.length != fragment.size_bytes()) {
      throw Error("a frame of another round has come; the ring's members disagree");
    }
    return std::as_writable_bytes(come < added ? std::span(scratch.get(), fragment.size())
                                               : fragment);
  };
  while (gone < to_send || come < to_receive) {
    deadline.check();
    bool something = false;
    // What was not this member's own is sent on once it has come.
    if (gone < to_send && (place.next.sending() || gone < own + come)) {
      if (!place.next.sending()) {
        const std::span<const std::byte> bytes = std::as_bytes(sent.fragment());
        place.next.begin({.kind = kind, .correlation = correlation(gone)}, {&bytes, 1});
      }
      if (place.next.flush()) {
        sent.advance();
        ++gone;
        something = true;
      }
    }
    if (come < to_receive && place.previous.take(into)) {
      if (come < added) add(received.fragment(), scratch.get());
      received.advance();
      ++come;
      something = true;
    }
    if (something) continue;
    const bool to_write = place.next.sending();
    if (come == to_receive) {
      place.next.wait(false, true, deadline);
    } else if (&place.next == &place.previous || !to_write) {
      place.previous.wait(true, to_write, deadline);
    } else {
      Connection::wait(place.previous, place.next, deadline);
    }
  }
}

}  // namespace leashed
