// Who tells the servers of a mode what happens, and has them carry out what has got there.
//
// Servers that decide alike (server/shards.h) are told what the first was told, in its order and by
// its time: of a push as soon as their part of it is there. A part that is lost with its worker is
// waited for until the servers know that the worker is gone, or its term is over, and is then no
// part of the mean. So each makes the first's updates, if later, and lets the same workers go on.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "leashed/simulation/mode_gradients.h"
#include "leashed/simulation/played_mode.h"

namespace leashed {

class ModeServers {
 public:
  ModeServers(PlayedMode& played, ModeGradients& gradients, Sink& sink)
      : played_(played), gradients_(gradients), sink_(sink), queues_(played.shards.size()) {}

  // The one that is told something now.
  std::size_t telling() const { return telling_; }

  void pull(std::uint32_t worker, std::size_t shard);
  // The server carries out its part of the worker's push.
  void push(std::uint32_t worker, std::size_t shard);
  // Who is there, and commands.
  void tell_all(const modes::Event& event);
  // The first, which alone asked for it.
  void wake() { first({modes::Event::Kind::wake}, nullptr); }
  // All examples are done: nothing that is under way is waited for any more, and what servers still
  // hold is applied.
  void finish();

 private:
  struct Told {
    modes::Event event;
    std::int64_t ns;
  };

  void look_ahead();
  void first(const modes::Event& event, const Payload* payload);
  void tell(std::size_t shard, const modes::Event& event, const Payload* payload, std::int64_t ns);
  void go_on(std::size_t shard);
  bool waits_for(const Told& told, const ModePlayer::Part& part) const;

  PlayedMode& played_;
  ModeGradients& gradients_;
  Sink& sink_;
  std::vector<std::deque<Told>> queues_;  // by shard, of those that decide as the first
  std::size_t telling_ = 0;
  bool finishing_ = false;
};

}  // namespace leashed
