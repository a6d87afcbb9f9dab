// Those with whom a trainer synchronises: sync servers, or the other trainers. What stands between
// them and a round (cluster/round.h) is the wire, or a test's schedule.
#pragma once

#include <cstdint>
#include <span>

#include "leashed/cluster/fragments.h"
#include "leashed/net/connection.h"

namespace leashed {

class Servers {
 public:
  virtual ~Servers() = default;
  // How an exchange begins, before theta is looked at: what for. `turn` tells which part of the
  // vector it is this time, where it goes in parts. False where that is nothing, since no server is
  // there.
  virtual bool begin(std::uint64_t turn) = 0;
  // Sends theta and takes what the servers answer; adds to `done` where some has come: of who is
  // away none does, of who is too late none, or with the next exchange. Where this training has had
  // nothing of the servers yet, alpha is 0, and theta is to become what has come: that is added to
  // `first`, but where a server has what it was given by this training, from which theta has gone
  // on: there theta itself counts as what has come. Whether all that was asked for has come.
  virtual bool exchange(const float* theta, float alpha, bool old_reply, Covered& done,
                        Covered& first, const Deadline& deadline) = 0;
  // Of the whole vector's length: what has come, where it has.
  virtual const float* other() const = 0;
  // How it ends: theta has become what has come for the first time.
  virtual void end() = 0;
};

// What a member was to take over: for all of them alike.
struct NotFinite : Error {
  using Error::Error;
};

class Peers {
 public:
  virtual ~Peers() = default;
  // How a round begins: whether there are others, and what is to be done with them first.
  enum class Begin {
    none,    // nobody, for now
    ready,   // sum() is next
    copies,  // take() is next, since they have not been together before
  };
  virtual Begin begin() = 0;
  // values, of which theta comes first, ← those of the first member that is not new; whether this
  // one is. Throws NotFinite, ConnectionError, Error: values are then worth nothing.
  virtual bool take(std::span<float> values, const Deadline& deadline) = 0;
  // A round takes one of so many parts of the vector after the other, and begins with the first
  // where it is with other members than the one before.
  virtual std::size_t parts() const { return 1; }
  struct Sum {
    std::uint32_t members;
    bool moved;  // of any of them
  };
  // other ← the sum over all members, in the part that `done` says. moved: whether theta has, and
  // not each part has been in a round since. Throws likewise: the round is lost, for all.
  virtual Sum sum(std::span<float> other, Covered& done, bool moved, const Deadline& deadline) = 0;
};

}  // namespace leashed
