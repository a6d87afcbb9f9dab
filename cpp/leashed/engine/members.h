// The threads that work with an engine: what each has read, and which of them push. They are the
// user's own and come and go; a thread becomes a member of the pushing ones at its first push, and
// leaves when it ends.
#pragma once

#include <cstdint>
#include <memory>

#include "leashed/update/stores.h"
#include "leashed/vector/permits.h"

namespace leashed {

class Members {
 public:
  // `length` of what they update.
  Members(std::size_t workers, std::size_t length)
      : workers_(workers), length_(length), shared_(std::make_shared<Shared>(workers)) {}
  ~Members() { shared_->ended.store(true, std::memory_order_relaxed); }  // a hint to forget it
  Members(const Members&) = delete;

  // What the calling thread has read last, and how it stores updates.
  struct Mine {
    StoreChoice stores;
    std::uint64_t t_read = 0;
    bool has_read = false;
    bool pushes = false;
  };
  Mine& mine();
  // Makes the calling thread one that pushes; false where there are `workers` others already.
  bool join(Mine& mine);

 private:
  struct Shared {
    explicit Shared(std::size_t workers) : permits(workers) {}
    Permits permits;
    std::atomic<bool> ended{false};
  };
  struct Memberships;
  static Memberships& memberships();

  const std::size_t workers_, length_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace leashed
