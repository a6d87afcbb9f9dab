// The threads that work with an engine: what each has read, and which of them push. They are the
// user's own and come and go; a thread becomes a member of the pushing ones at its first push, and
// leaves when it ends. While it is one, it has a place of its own among them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "leashed/engine/synchronisation.h"
#include "leashed/update/stores.h"

namespace leashed {

class Members {
 public:
  // `length` of what they update. `synchronisation`, if there is one, is told who joins and leaves,
  // until part().
  Members(std::size_t workers, std::size_t length, Synchronisation* synchronisation)
      : workers_(workers),
        length_(length),
        shared_(std::make_shared<Shared>(workers, synchronisation)) {}
  ~Members() { shared_->ended.store(true, std::memory_order_relaxed); }  // a hint to forget it
  Members(const Members&) = delete;

  // What the calling thread has read last, and how it stores updates.
  struct Mine {
    StoreChoice stores;
    std::uint64_t t_read = 0;
    bool has_read = false;
    bool pushes = false;
    std::size_t place = 0;  // of those that push, in [0, workers)
  };
  Mine& mine();
  // Makes the calling thread one that pushes; false where there are `workers` others already.
  bool join(Mine& mine);
  // The synchronisation is told nothing any more, from whatever thread.
  void part();

 private:
  struct Shared {
    Shared(std::size_t workers, Synchronisation* others);
    bool take(std::size_t& place);
    void give_back(std::size_t place);

    std::atomic<bool> ended{false};
    std::mutex mutex;
    // Under the lock, by which who gets a place sees all that was done by who had it.
    std::vector<std::size_t> free;  // places
    Synchronisation* synchronisation;
  };
  struct Memberships;
  static Memberships& memberships();

  const std::size_t workers_, length_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace leashed
