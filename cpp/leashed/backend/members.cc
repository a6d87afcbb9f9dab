#include "leashed/backend/members.h"

#include <chrono>
#include <thread>
#include <vector>

namespace leashed {
namespace {

// A thread that Python has joined may not have ended yet: so long is waited for it.
constexpr auto kPatience = std::chrono::milliseconds(200);
constexpr auto kPause = std::chrono::milliseconds(1);

}  // namespace

Members::Shared::Shared(std::size_t workers, Synchronisation* others) : synchronisation(others) {
  free.reserve(workers);
  while (free.size() < workers) free.push_back(workers - 1 - free.size());
}

bool Members::Shared::take(std::size_t& place) {
  const std::lock_guard lock(mutex);
  if (free.empty()) return false;
  place = free.back();
  free.pop_back();
  if (synchronisation) synchronisation->join(place);
  return true;
}

void Members::Shared::give_back(std::size_t place) {
  const std::lock_guard lock(mutex);
  if (synchronisation) synchronisation->leave(place);
  free.push_back(place);
}

void Members::part() {
  const std::lock_guard lock(shared_->mutex);
  shared_->synchronisation = nullptr;
}

// Of one thread, the engine it used last first. Few: those it uses and those not yet forgotten.
struct Members::Memberships {
  struct Membership {
    std::shared_ptr<Shared> shared;
    Mine mine;
  };
  ~Memberships() {
    for (const Membership& membership : all) {
      if (membership.mine.pushes) membership.shared->give_back(membership.mine.place);
    }
  }
  std::vector<Membership> all;
};

Members::Memberships& Members::memberships() {
  thread_local Memberships mine;
  return mine;
}

Members::Mine& Members::mine() {
  auto& all = memberships().all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].shared != shared_) continue;
    if (i > 0) std::swap(all[0], all[i]);
    return all[0].mine;
  }
  std::erase_if(all, [](const auto& membership) {
    return membership.shared->ended.load(std::memory_order_relaxed);
  });
  all.insert(all.begin(), {shared_, {StoreChoice(workers_, length_)}});
  return all[0].mine;
}

bool Members::join(Mine& mine) {
  if (mine.pushes) return true;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!shared_->take(mine.place)) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return mine.pushes = true;
}

}  // namespace leashed
