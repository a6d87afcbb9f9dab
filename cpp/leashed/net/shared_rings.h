// Two byte rings, one each way, in memory that two processes map. The memory has no name: nothing
// is left of it when both have ended, however they end.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "leashed/base/descriptor.h"
#include "leashed/net/byte_ring.h"

namespace leashed {

// What proves that a process has the very memory: too long to be guessed.
using Secret = std::array<std::uint64_t, 2>;
Secret draw_secret();

class SharedRings {
 public:
  // Both rings fit into the cache of one core, and a frame of a ring of members does with three
  // behind it.
  static constexpr std::size_t kCapacity = std::size_t{1} << 20;

  // Makes the memory, all of it backed, with that secret in it; capacity: of each ring, a power of
  // two of pages. Throws Error where it cannot.
  static std::shared_ptr<SharedRings> create(const Secret& secret,
                                             std::size_t capacity = kCapacity);
  // The memory that another process has open under that number; null where there is none, or it
  // is not to be had, or does not hold the secret: what one finds on another host.
  static std::shared_ptr<SharedRings> open(pid_t process, int file, const Secret& secret);
  ~SharedRings();
  SharedRings(const SharedRings&) = delete;
  SharedRings& operator=(const SharedRings&) = delete;

  // The number under which another process can open it; until it has.
  int file() const { return file_.get(); }
  void close_file();
  // Which of both: 0 from who has made the memory, 1 to it.
  RingView ring(std::size_t which) const;
  // Written by who has opened it, read by who has made it.
  void answer(const Secret& answer);
  bool answered(const Secret& answer) const;

 private:
  SharedRings(Descriptor& file, std::size_t capacity);

  Descriptor file_;
  const std::size_t capacity_;
  std::byte* data_ = nullptr;
};

}  // namespace leashed
