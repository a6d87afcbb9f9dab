// The log of a policy server that leads others, and how far each of them has heard it. It goes to
// them in blocks, one at a time each, the next when they say that they have heard the one before;
// whose connection was cut says where he is, and is told what is behind that.
//
// A line by which parameters come home ends its block, before which each is sent his part of them;
// so who has heard the line has that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/part_messages.h"
#include "leashed/net/service.h"
#include "leashed/server/event_log.h"

namespace leashed {

class ToldLog {
 public:
  // Of so many servers behind the first; `first`: the number of the first line that is appended.
  ToldLog(std::size_t followers, std::uint64_t first) : log_(first), followers_(followers) {}

  // What is appended from now on nobody has heard before: there was another process until now.
  void goes_on() { ours_ = log_.next(); }
  // Whether that one, which says hello for the first time, has heard more than that process has
  // left.
  bool ahead(std::uint64_t server, const ToldHello& said) const;
  void append(const modes::Event& event, Time at) { append({event, at}); }
  void append(const LogLine& line) { log_.append(line); }
  // Of parameters, θ and a rule's states, of each server behind the first.
  using Part = std::shared_ptr<const AlignedArray<float>>;
  void append_home(const LogLine& line, std::vector<Part> parts);
  std::uint64_t position() const { return log_.next(); }
  // Lines before this one nobody asks for any more.
  std::uint64_t first() const { return log_.first(); }
  // One of them, by its number from 1, has this connection from now on; one that was started again
  // goes on from what it had kept. Throws Error where it is no such server, was started again, and
  // knows nothing of the run any more, or asks for lines that are forgotten.
  void hello(Peer peer, std::uint64_t server, const ToldHello& said, std::uint64_t boot,
             Post& post);
  // What one of them says that it has heard, and kept. Throws Error of anybody else.
  void heard(Peer peer, const ToldAt& said);
  void gone(Peer peer);
  // Whose connection that is, by its number from 1; 0: nobody's. And the other way round.
  std::uint64_t server_of(Peer peer) const;
  Peer peer_of(std::uint64_t server) const { return followers_.at(server - 1).peer; }
  // Whether all of them have heard all of it.
  bool all_heard() const;
  std::size_t followers() const { return followers_.size(); }
  // The connection of the one of that number, from 1; 0: it has none.
  Peer peer(std::uint64_t server) const { return followers_[server - 1].peer; }
  // Sends whatever can go.
  void send(Post& post);

 private:
  struct Follower {
    Peer peer = 0;                                // 0: it has no connection
    std::uint64_t boot = 0, heard = 0, kept = 0;  // kept: what goes before is not asked for again
    bool told = false;  // a block, and it has not said yet that it has heard it
  };

  struct Home {
    std::uint64_t line;
    std::vector<Part> parts;
  };

  EventLog log_;
  std::deque<Home> homes_;                  // that somebody has not heard yet
  std::uint64_t ours_ = ~std::uint64_t{0};  // the first line since
  std::vector<Follower> followers_;
};

}  // namespace leashed
