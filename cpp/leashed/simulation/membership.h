// Who is there in virtual time: who leaves, crashes and joins as was said beforehand, and who
// crashes by chance and returns by itself.
//
// Who leaves says so. Of who crashes nobody hears: the server counts it as there until its lease
// has run out, or it is missed, or it comes back. Each coming and each going begins another life;
// what was to happen to a worker in an earlier one does not.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "leashed/simulation/durations.h"

namespace leashed {

struct MemberChange {
  enum class Kind : std::uint8_t { leave, crash, join } kind;
  std::uint32_t worker;
  double seconds;
};

struct MemberOptions {
  // Ascending. Who joins first is not there at the beginning.
  std::vector<MemberChange> changes = {};
  // Of the exponential distributions of how long a worker is there before it crashes, and then
  // away; mean_between = 0: nobody does by chance.
  double mean_between = 0, mean_down = 0;
  double detection = 0;  // seconds until a crashed worker is missed; infinite: never
};

class Membership {
 public:
  using Life = std::uint32_t;  // from 1

  Membership(const MemberOptions& options, std::uint32_t workers, std::uint64_t seed);

  bool there(std::uint32_t worker) const { return members_[worker].there; }
  Life life(std::uint32_t worker) const { return members_[worker].life; }
  // Gone, and the server has not heard of it.
  bool unheard(std::uint32_t worker) const { return members_[worker].unheard; }

  void come(std::uint32_t worker);
  void leave(std::uint32_t worker);
  void crash(std::uint32_t worker);
  void miss(std::uint32_t worker) { members_[worker].unheard = false; }

  bool by_chance() const { return between_ != nullptr; }
  std::int64_t until_crash(std::uint32_t worker);
  std::int64_t until_return(std::uint32_t worker);

 private:
  struct Member {
    bool there = true, unheard = false;
    Life life = 1;
    std::uint64_t crashes = 0, returns = 0;  // drawn
  };

  std::unique_ptr<Durations> between_, down_;
  std::vector<Member> members_;
};

}  // namespace leashed
