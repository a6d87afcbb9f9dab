#include "leashed/simulation/row_servers.h"

#include <algorithm>

#include "leashed/cluster/row_messages.h"
#include "leashed/net/frame.h"
#include "leashed/table/table.h"

namespace leashed {
namespace {

RowPlacement placement_of(const RowServersPlan& plan,
                          const std::vector<std::shared_ptr<Table>>& tables) {
  std::vector<RowPlacement::PlacedTable> placed;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const bool whole = !plan.servers_of_tables.empty();
    placed.push_back(
        {tables[t]->grows(), whole ? plan.servers_of_tables[t] : RowPlacement::kSpread});
  }
  return {std::move(placed), RowPlacement::evenly(plan.count)};
}

}  // namespace

RowServers::RowServers(const RowServersPlan& plan,
                       const std::vector<std::shared_ptr<Table>>& tables)
    : plan_(plan), placement_(placement_of(plan, tables)), servers_(plan.count) {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    dims_.push_back(static_cast<std::uint32_t>(tables[t]->dim()));
    for (std::size_t s = 0; s < servers_.size(); ++s) servers_[s].tables += placement_.has(t, s);
  }
  for (std::size_t s = 0; s < servers_.size(); ++s) serving_ += serves(s);
}

void RowServers::divide(const RowKeys& keys, std::vector<Part>& parts) const {
  parts.assign(servers_.size(), {});
  std::size_t first = 0;
  for (std::size_t t = 0; t < keys.parts.size(); ++t) {
    for (std::size_t i = first; i < first + keys.parts[t].count; ++i) {
      Part& part = parts[placement_(t, keys.ids[i])];
      ++part.rows;
      part.floats += dims_[t];
    }
    first += keys.parts[t].count;
  }
}

std::int64_t RowServers::carry(std::int64_t now, Link& link, std::size_t bytes,
                               std::uint64_t& counted) {
  counted += bytes;
  return link.carry(now, bytes, plan_.bandwidth, plan_.latency);
}

std::int64_t RowServers::ask(std::int64_t now, std::size_t server, const Part& part) {
  const std::size_t counts = (servers_[server].tables + 1) / 2 * sizeof(std::uint64_t);
  const std::size_t ids = part.rows * sizeof(std::uint64_t);
  return carry(now, servers_[server].in, kFrameHeader + sizeof(LookupHead) + counts + ids,
               bytes_in_);
}

std::int64_t RowServers::answer(std::int64_t now, std::size_t server, const Part& part) {
  return carry(now, servers_[server].out, kFrameHeader + part.floats * sizeof(float), bytes_out_);
}

std::int64_t RowServers::push(std::int64_t now, std::size_t server, const Part& part) {
  return carry(now, servers_[server].in,
               kFrameHeader + sizeof(PushHead) + part.floats * sizeof(float), bytes_in_);
}

void RowServers::settle(std::int64_t now, std::size_t server) {
  carry(now, servers_[server].out, kFrameHeader + sizeof(Settled), bytes_out_);
}

std::int64_t RowServers::work(std::int64_t now, std::size_t server, const Part& part) {
  Server& own = servers_[server];
  const double seconds = (plan_.batch + plan_.row * part.rows) / 2;
  own.free = after(std::max(now, own.free), in_ns(seconds));
  return own.free;
}

}  // namespace leashed
