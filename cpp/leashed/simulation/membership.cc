#include "leashed/simulation/membership.h"

#include "leashed/simulation/virtual_clock.h"

namespace leashed {

Membership::Membership(const MemberOptions& options, std::uint32_t workers, std::uint64_t seed)
    : members_(workers) {
  std::vector<bool> told(workers);
  for (const MemberChange& change : options.changes) {
    if (!told[change.worker] && change.kind == MemberChange::Kind::join) {
      members_[change.worker].there = false;
    }
    told[change.worker] = true;
  }
  if (options.mean_between <= 0) return;
  between_ =
      make_durations({"exponential", {{"mean", options.mean_between}}}, seed_of(seed, kCrash));
  down_ = make_durations({"exponential", {{"mean", options.mean_down}}}, seed_of(seed, kReturn));
}

void Membership::come(std::uint32_t worker) {
  Member& member = members_[worker];
  member.there = true;
  member.unheard = false;
  ++member.life;
}

void Membership::leave(std::uint32_t worker) {
  Member& member = members_[worker];
  member.there = member.unheard = false;
  ++member.life;
}

void Membership::crash(std::uint32_t worker) {
  leave(worker);
  members_[worker].unheard = true;
}

std::int64_t Membership::until_crash(std::uint32_t worker) {
  return (*between_)(worker, members_[worker].crashes++);
}

std::int64_t Membership::until_return(std::uint32_t worker) {
  return (*down_)(worker, members_[worker].returns++);
}

}  // namespace leashed
