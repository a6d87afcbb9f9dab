// Who looks at the parameters of a mode's policy servers, without being a worker: at the first, and
// then at each of the others as soon as it has carried out what the first had by then. Of tables
// whose rows they have he reads rows, too, as they are by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/asked_rows.h"
#include "leashed/cluster/mode_messages.h"
#include "leashed/cluster/mode_shards.h"
#include "leashed/net/conversation.h"

namespace leashed {

class ModeLooks {
 public:
  // What is given must stay.
  ModeLooks(const ModeHello& hello, const ModeShards& shards, std::size_t dimension);

  // From any thread.
  void adopt(std::size_t server, std::unique_ptr<Connection> connection) {
    talk_.adopt(server, std::move(connection));
  }
  bool there(std::size_t server) const { return talk_.there(server); }
  const WireCount& traffic() const { return talk_.traffic(); }

  // What follows is for the looking thread.

  // What is seen before the first look.
  void begin(const float* theta);
  // Looks, or reads, anew.
  void look();
  // Says and hears what goes now; whether all have answered. Throws Error where one has other
  // parameters, or was started again.
  bool turn();
  // The same of rows, which are read in place of the parameters, of each server those that it has.
  bool turn(AskedRows& rows);
  // What is asked will not stay where it is.
  void forsake();
  // Waits a moment for more to come, and counts what has.
  void wait();
  // Bytes that have come.
  std::uint64_t came() const { return talk_.traffic().own().in; }

  // Of the last look that was answered.
  const ModeLooked& head() const { return head_; }
  RowPublication rows() const;  // of all servers
  const float* theta() const { return theta_.data(); }

 private:
  struct Part {
    AlignedArray<float> coming;  // ModeLooked, then the parameters
    ModeLooked last{};
    bool asked = false, there = false;
    bool reading = false, read = false;  // rows: was asked, and they are there
    std::vector<std::byte> stale{};      // rows that are wanted no more
  };

  bool may_ask(std::size_t server) const { return server == 0 || parts_[0].there; }
  void turn_one(std::size_t server);
  void read_one(std::size_t server, AskedRows& rows);
  // Where an answer goes to what is wanted no more. Throws Error where it is none.
  std::span<std::byte> place_stale(std::size_t server, const FrameHeader& head);
  void ask(std::size_t server);
  void heard(std::size_t server);

  const ModeHello hello_;
  const ModeShards& shards_;
  Conversation talk_;
  std::vector<Part> parts_;
  ModeLooked head_{};
  AlignedArray<float> theta_;
  std::vector<std::size_t> connected_;
  std::uint64_t reads_ = 0;  // so far
  bool reads_rows_ = false;  // in place of the parameters
};

}  // namespace leashed
