// What rows cost an embedding server and a trainer's thread, so that it can be said how many
// servers a run needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "leashed/net/share.h"
#include "leashed/table/table.h"

namespace leashed {

// Of one batch, whose rows are looked up and pushed: medians, and means of what is counted.
struct RowCosts {
  double rows = 0;                     // distinct ones
  double serving = 0;                  // seconds of the server's processor time
  double asking = 0;                   // of the thread's that combines ids, asks, and pushes
  double bytes_in = 0, bytes_out = 0;  // of the server
};

// A server that is made for it holds the tables, over the two ends of a connection, which are
// taken over. ids[batch][table][example] are looked up and pushed in turns, `examples` of each
// table a batch; rows are updated by gradients of 0. Throws Error where an id is no row, or a
// table has no seat left.
RowCosts profile_rows(int here, int there, Transport wish,
                      const std::vector<std::shared_ptr<Table>>& tables,
                      std::span<const std::uint64_t> ids, std::size_t examples);

}  // namespace leashed
