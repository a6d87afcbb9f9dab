// The rows of a batch that somebody asks policy servers for (cluster/mode_messages.h): a lane,
// which trains on them, or who evaluates. Of several servers each is asked for those that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/row_messages.h"
#include "leashed/row_store/combine_batch.h"
#include "leashed/table/row_placement.h"

namespace leashed {

// The tables whose rows policy servers have, and of each feature its table.
struct ServedTables {
  std::vector<ServedTable> tables;
  std::vector<std::size_t> features_of_tables;
  std::size_t servers = 1;
  std::optional<RowPlacement> placement{};  // of several; nothing: one has all
};

class AskedRows {
 public:
  using Bytes = std::span<const std::byte>;

  // `tables` must stay. trains: gradients are wanted.
  AskedRows(const ServedTables& tables, bool trains);

  // Combines the batch's ids. Throws Error where one is no row of its table, or they are more than
  // frames have room for.
  void combine(const BatchView& batch);
  // What a server is asked, until it combines again: LookupHead, counts, ids.
  Bytes lookup(std::size_t server) const { return std::as_bytes(std::span(of_[server].ask)); }
  // Where its rows come.
  std::span<std::byte> place(std::size_t server) {
    return std::as_writable_bytes(std::span(of_[server].values.data(), of_[server].floats));
  }
  // Fills in the view's tables and places, valid until it combines again; gradients are 0. The
  // batch is the one that was combined.
  void show(BatchView& batch);
  // The gradients of a server's rows, by table, as they are pushed, until it shows another batch;
  // of several servers a copy, which stays until it is asked for again.
  std::span<const Bytes> gradients(std::size_t server);

 private:
  // What a server has.
  struct Of {
    std::vector<std::size_t> tables;
    std::vector<std::uint64_t> ask;
    std::size_t floats = 0;  // of the rows
    AlignedArray<float> values;
    AlignedArray<float> sent;  // of several servers
    std::vector<Bytes> pushed;
  };

  void place_ids();
  void ask(std::size_t server, std::size_t examples);
  void check_size(const Of& of, std::size_t examples) const;
  // f(i) of each of the table's ids whose row that server has.
  template <class F>
  void each(std::size_t table, std::size_t server, const F& f) const;

  const ServedTables& served_;
  const bool trains_;
  Combiner combiner_;
  FoundRows found_;
  std::vector<Of> of_;                                 // by server
  std::vector<std::vector<std::uint16_t>> server_of_;  // by table, of each id; of several servers
  std::vector<std::vector<const float*>> pointers_;    // by table
  std::vector<AlignedArray<float>> gradients_;
  std::vector<TableRows> rows_;
};

}  // namespace leashed
