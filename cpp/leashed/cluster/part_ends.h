// What the policy servers behind the first of several have at the end of a run that is recorded:
// each is asked for it, at a line of the log, and a record's end is of the moment at which all of
// them have answered, and the first has heard no more since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "leashed/cluster/told_log.h"
#include "leashed/net/service.h"

namespace leashed {

struct PartEnd {
  std::uint64_t position = 0;          // lines of the log that are carried out
  std::uint64_t updates = 0;           // that come of them
  std::vector<std::uint64_t> missed;   // lines of pushes of which it had no part
  std::vector<std::uint64_t> digests;  // of its tables
  std::vector<float> theta;            // its part
};

class PartEnds {
 public:
  // Asks whoever has a connection, has not answered at the log's end, and is not yet to answer over
  // it. Whether all have answered there.
  bool known(const ToldLog& log, Post& post);
  // Memory for an answer; throws Error where that connection was not asked.
  std::span<std::byte> place(Peer peer, std::size_t bytes);
  // Throws Error where it is none of what was asked for.
  void said(Peer peer);
  // Each is told that it is asked for nothing more.
  void let_go(const ToldLog& log, Post& post) const;
  // By server, from 1 on; of a position before the log's end: it has not answered.
  const std::vector<PartEnd>& of() const { return ends_; }

 private:
  struct Asked {
    Peer peer = 0;
    std::uint64_t position = 0;
    bool answered = false;
    std::vector<std::byte> bytes;
  };

  std::size_t asked(Peer peer) const;

  std::vector<Asked> asked_;
  std::vector<PartEnd> ends_;
};

}  // namespace leashed
