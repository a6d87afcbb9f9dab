// What a vector hands out: a Pin on a published vector, and the Draft of the next. Each knows whom
// it is from (Owner) and by what that knows it (Place), and is given back by destruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace leashed {

// A published vector that cannot change or be recycled until the pin is released. Release a pin
// before taking the next: `p = v.pin()` over a live one holds two for a moment, and the bounds
// count one for each thread.
template <class Owner, class Place>
class Pin {
 public:
  Pin() = default;
  Pin(Pin&& other) noexcept { *this = std::move(other); }
  Pin& operator=(Pin&& other) noexcept {
    release();
    owner_ = std::exchange(other.owner_, nullptr);
    place_ = other.place_;
    return *this;
  }
  ~Pin() { release(); }

  const float* data() const { return owner_->data_at(place_); }
  std::uint64_t t() const { return owner_->t_at(place_); }
  explicit operator bool() const { return owner_ != nullptr; }
  void release() {
    if (owner_) std::exchange(owner_, nullptr)->release(place_);
  }

 private:
  friend Owner;
  Pin(Owner* owner, Place place) : owner_(owner), place_(place) {}
  // It holds nothing any more, and there is nothing to release.
  void forget() { owner_ = nullptr; }

  Owner* owner_ = nullptr;
  Place place_{};
};

// A vector that only its owner sees; recycled by destruction unless it was published.
template <class Owner>
class Draft {
 public:
  Draft() = default;
  Draft(Draft&& other) noexcept { *this = std::move(other); }
  Draft& operator=(Draft&& other) noexcept {
    recycle();
    owner_ = std::exchange(other.owner_, nullptr);
    slot_ = other.slot_;
    return *this;
  }
  ~Draft() { recycle(); }

  float* data() { return owner_->draft_at(slot_); }
  explicit operator bool() const { return owner_ != nullptr; }

 private:
  friend Owner;
  Draft(Owner* owner, std::size_t slot) : owner_(owner), slot_(slot) {}
  void recycle() {
    if (owner_) std::exchange(owner_, nullptr)->recycle(slot_);
  }
  void forget() { owner_ = nullptr; }  // as Pin's

  Owner* owner_ = nullptr;
  std::size_t slot_ = 0;
};

}  // namespace leashed
