// A lane's side of a mode's servers behind the first (cluster/part_messages.h): it says there who
// it is once the first has welcomed it, hears each one's part of what is granted, asks each for
// the rows of a batch that it has, and sends each its part of a push. Nothing here waits: the
// lane's thread turns it beside what it has with the first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/asked_rows.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/net/conversation.h"
#include "leashed/server/own_models.h"

namespace leashed {

class RemoteParts {
 public:
  // The conversation has a lane for each server; the first's is another's. What is given must stay.
  RemoteParts(Conversation& talk, const ModeShards& shards);

  // The first has welcomed the lane, as that node and life.
  void welcomed(const ModeHello& hello, const ModeWelcome& said);
  // It has granted that lease.
  void granted(const GrantHead& head);
  // Whether the others have granted the same lease.
  bool there() const;
  // What a server's grant brought.
  PulledModel pulled(std::size_t server) const;
  // Asks each for its rows of that lease's batch, once all have granted; looked_up(): they have
  // come. The rows must stay until they have, and their push has gone. ticket: of a round, as all
  // grant it, without parameters; 0: they have granted it.
  void look_up(AskedRows& rows, std::uint64_t ticket = 0);
  bool looked_up() const;
  // Of a round: sends each the gradients of its rows; rows_given(): all that were sent have come
  // there.
  void give_rows();
  bool rows_given() const;
  // Sends each its part of what was computed on that lease, of which it takes a copy, with the
  // gradients of its rows, if any were looked up.
  void push(const GrantHead& lease, const float* all);
  // Says that this lane comes no more, after all that was sent; left(): all have heard it.
  void leave();
  bool left() const;

  enum class Turn : std::uint8_t { nothing, something, lost };
  // Says and hears what goes now. `lost`: a connection has ended over which the lane was somebody,
  // so that its life is over; or a server has said that all is over, and the lane has a lease,
  // which is another's by then. Throws Error where a server was started again, or has other
  // parameters.
  Turn turn();
  // That life is over: connections over which the lane was somebody are closed. Whether a part of
  // its push has not gone whole.
  bool forget();
  // Since now something is waited for.
  void wait_from(double time);
  // Whether nothing was heard of a server that owes something for so long; asks it meanwhile.
  // Throws Error where that is so, over any connection, for twice as long.
  bool hung(double time, double patience);
  // Frames that were said to no purpose, which ended their connection.
  std::uint64_t strange() const { return strange_; }

 private:
  struct Part {
    AlignedArray<float> granted;                       // GrantHead, then the parameters
    AlignedArray<float> sent;                          // a part, then its PartTail
    std::vector<std::span<const std::byte>> pushed;    // that, and gradients of rows
    std::array<std::byte, sizeof(GrantHead)> small{};  // of any other frame
    std::uint64_t boot = 0;                            // 0: it was never heard
    // Of the connection that it has.
    bool greeted = false, welcomed = false, probes = false;
    bool sends = false, pulls = false, leaves = false;  // is to say so, in this order
    bool pushing = false;                               // has not gone whole
    bool looks = false;                                 // is to ask for rows, before all these
    bool looks_up = false;                              // they are to come
    bool gives = false;                                 // is to send a round's gradients of rows
    std::uint32_t gave = 0;                             // times, which were not acknowledged yet
    bool fresh = false;                                 // what was granted is not pushed yet
    bool left = false;                                  // it has said that all is over
    bool leaving = false;                               // it was told that this lane comes no more
    std::uint64_t ticket = 0;                           // that it has granted last
    std::uint64_t bytes = 0;      // that had come and gone when it was looked at last
    double heard = 0, quiet = 0;  // as of RemoteServer
  };

  Part& part(std::size_t server) { return parts_[server - 1]; }
  const Part& part(std::size_t server) const { return parts_[server - 1]; }
  std::size_t servers() const { return shards_.servers(); }
  bool say(std::size_t server);
  bool hear(std::size_t server);
  void begin(Part& of);

  Conversation& talk_;
  const ModeShards& shards_;
  std::vector<Part> parts_;  // of servers from 1 on
  bool known_ = false;       // the first has welcomed the lane
  PartHello hello_{};
  AskedRows* rows_ = nullptr;     // of the lease; null: there are none
  std::uint64_t lease_ = 0;       // the first's ticket; 0: it has granted none
  std::uint64_t asks_under_ = 0;  // as look_up() has it
  std::uint64_t strange_ = 0;
  double looked_ = 0;  // when hung() was asked last
};

}  // namespace leashed
