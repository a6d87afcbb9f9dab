// Workers of a mode that come and go (membership.h): what becomes of what they have, and what they
// come with.
#pragma once

#include <cstdint>

#include "leashed/simulation/mode_outcome.h"
#include "leashed/simulation/mode_servers.h"
#include "leashed/simulation/mode_transfers.h"
#include "leashed/simulation/played_mode.h"

namespace leashed {

class ModeMembers {
 public:
  ModeMembers(PlayedMode& played, ModeTransfers& transfers, ModeOutcome& outcome,
              ModeServers& servers)
      : played_(played), transfers_(transfers), outcome_(outcome), servers_(servers) {}

  // Those who are there at the beginning, and what is to become of them.
  void begin();
  void leave(std::uint32_t worker);
  void crash(std::uint32_t worker, bool by_chance);
  void miss(std::uint32_t worker);
  void join(std::uint32_t worker);

 private:
  void go(std::uint32_t worker);
  void drop(ModePlayer::Part& part);
  void renew(std::uint32_t worker);
  std::uint32_t next(std::uint32_t worker) const;
  void lend(std::uint32_t from, std::uint32_t to);

  PlayedMode& played_;
  ModeTransfers& transfers_;
  ModeOutcome& outcome_;
  ModeServers& servers_;
};

}  // namespace leashed
