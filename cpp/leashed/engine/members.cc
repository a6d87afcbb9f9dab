#include "leashed/engine/members.h"

#include <chrono>
#include <thread>
#include <vector>

namespace leashed {
namespace {

// A thread that Python has joined may not have ended yet: so long is waited for it.
constexpr auto kPatience = std::chrono::milliseconds(200);
constexpr auto kPause = std::chrono::milliseconds(1);

}  // namespace

// Of one thread, the engine it used last first. Few: those it uses and those not yet forgotten.
struct Members::Memberships {
  struct Membership {
    std::shared_ptr<Shared> shared;
    Mine mine;
  };
  ~Memberships() {
    for (const Membership& membership : all) {
      if (membership.mine.pushes) membership.shared->permits.give_back();
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
  while (!shared_->permits.take()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return mine.pushes = true;
}

}  // namespace leashed
