// Embedding servers in virtual time, as far as they take time: each has a link, each way, and a
// processor that serves look-ups and pushes in the order in which they come, by their frames' bytes
// (cluster/row_messages.h).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "leashed/server/row_holder.h"
#include "leashed/simulation/link.h"
#include "leashed/table/row_placement.h"

namespace leashed {

class Table;

struct RowServersPlan {
  std::size_t count = 0;  // none: rows are where they are used, and take no time
  double bandwidth = std::numeric_limits<double>::infinity();  // bytes a second, each way
  double latency = 0;                                          // seconds, each way
  // Seconds of a server's processor for the look-up and the push of a batch, and of each of its
  // rows there: half at either.
  double batch = 0, row = 0;
  std::size_t look_ahead = 1;                         // 0 or 1
  std::vector<std::uint32_t> servers_of_tables = {};  // empty: rows are spread by their ids
};

class RowServers {
 public:
  RowServers(const RowServersPlan& plan, const std::vector<std::shared_ptr<Table>>& tables);

  // Of a batch, what a server has of it.
  struct Part {
    std::uint32_t rows = 0, floats = 0;
  };
  const RowPlacement& placement() const { return placement_; }
  std::size_t count() const { return servers_.size(); }
  bool serves(std::size_t server) const { return servers_[server].tables > 0; }
  std::size_t serving() const { return serving_; }
  void divide(const RowKeys& keys, std::vector<Part>& parts) const;

  // When what is sent now is there.
  std::int64_t ask(std::int64_t now, std::size_t server, const Part& part);
  std::int64_t answer(std::int64_t now, std::size_t server, const Part& part);
  std::int64_t push(std::int64_t now, std::size_t server, const Part& part);
  void settle(std::int64_t now, std::size_t server);
  // When a look-up or a push that has come now is carried out.
  std::int64_t work(std::int64_t now, std::size_t server, const Part& part);

  std::uint64_t bytes_in() const { return bytes_in_; }  // of the servers
  std::uint64_t bytes_out() const { return bytes_out_; }

 private:
  struct Server {
    Link in, out;
    std::int64_t free = 0;
    std::size_t tables = 0;
  };
  std::int64_t carry(std::int64_t now, Link& link, std::size_t bytes, std::uint64_t& counted);

  const RowServersPlan& plan_;
  const RowPlacement placement_;
  std::vector<std::uint32_t> dims_;  // of tables
  std::vector<Server> servers_;
  std::size_t serving_ = 0;
  std::uint64_t bytes_in_ = 0, bytes_out_ = 0;
};

}  // namespace leashed
