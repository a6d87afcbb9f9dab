// Who tells the servers of a mode what happens, and has them carry out what has got there.
//
// Servers that decide alike (server/shards.h) follow the first (server/follower.h): they are told
// what it was told, in its order and by its time. A part that is lost with its worker is waited for
// until the servers know that the worker is gone, or its term is over, and is then no part of the
// mean. So each makes the first's updates, if later, and lets the same workers go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "leashed/server/follower.h"
#include "leashed/simulation/mode_gradients.h"
#include "leashed/simulation/played_mode.h"

namespace leashed {

class ModeServers {
 public:
  ModeServers(PlayedMode& played, ModeGradients& gradients, Sink& sink);

  // The one that is told something now.
  std::size_t telling() const { return telling_; }

  void pull(std::uint32_t worker, std::size_t shard);
  // The server carries out its part of the worker's push.
  void push(std::uint32_t worker, std::size_t shard);
  // Who is there, and commands.
  void tell_all(const modes::Event& event);
  // What servers have of a worker that is gone, of a push of which the first knows nothing.
  void drop(std::uint32_t worker);
  // The first, which alone asked for it.
  void wake() { first({modes::Event::Kind::wake}, nullptr); }
  // All examples are done: nothing that is under way is waited for any more, and what servers still
  // hold is applied.
  void finish();

 private:
  void look_ahead();
  void first(const modes::Event& event, const Payload* payload);
  void tell(std::size_t shard, const modes::Event& event, const Payload* payload);
  Follower& follower(std::size_t shard) { return followers_[shard - 1]; }
  void go_on(std::size_t shard);
  bool waits_for(const Follower::Told& told, std::size_t shard) const;

  PlayedMode& played_;
  ModeGradients& gradients_;
  Sink& sink_;
  std::deque<Follower> followers_;  // of shards behind the first, where they decide as it does
  std::size_t telling_ = 0;
  bool finishing_ = false;
};

}  // namespace leashed
