// Pools of one feature of a batch that embedding servers make (cluster/row_messages.h), as who asks
// for them has them: the model reads one row an example in their place.
//
// Where one server has all rows of the table, its pools are read where they come, and their
// gradients sent from where they are added up. Else each server pools what it has: sums are added
// in the order of the servers, and divided by all of an example's ids where the mean is wanted; of
// maxima the largest is taken, of equals the first entry's, and its gradient goes where it is from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/kernels/embedding.h"

namespace leashed {

class AskedPool {
 public:
  // Of an id of the batch: the server that has its row, and its place among those asked there.
  struct Spot {
    std::uint32_t server, place;
  };
  // Where a server's pools are in what it answers.
  struct Reply {
    const float* floats;
    const std::byte* winners;
  };

  AskedPool(std::size_t feature, std::size_t table, std::size_t dim, Pooling pooling,
            std::size_t servers, std::optional<std::size_t> whole)
      : feature(feature),
        table(table),
        whole(whole),
        dim_(dim),
        pooling_(pooling),
        parts_(servers) {}

  const std::size_t feature, table;
  const std::optional<std::size_t> whole;  // the server that has all of the table

  // entries: of each its id's place among the batch's; spots: of these ids, or null where one
  // server has all. first: from where on the table's rows are the pools.
  void find(const IdColumn& column, std::size_t size, const std::uint32_t* entries,
            const Spot* spots, std::size_t first);
  // Pools, and the row of zeros behind them, which examples without ids have.
  std::size_t rows() const { return count_ + 1; }
  std::size_t count() const { return count_; }
  std::size_t first() const { return first_; }
  // Of places and weights, where places are short.
  std::size_t entry_bytes() const { return entries_ * (weighted_ ? 6 : 2); }
  const std::uint32_t* places() const { return places_.data(); }

  std::size_t pools_of(std::size_t server) const { return parts_[server].counts.size(); }
  std::size_t floats_of(std::size_t server) const { return pools_of(server) * dim_; }
  // Of its winners in what it answers.
  std::size_t winner_bytes_of(std::size_t server) const;
  // Adds what the server is told, which knows the table by a number of its own, and is asked for so
  // many of its ids.
  void tell(std::size_t server, std::size_t number, std::size_t ids, std::vector<std::byte>& to);
  // Whether what the server says of winners can be.
  bool holds(std::size_t server, const std::byte* winners) const;

  // Of tables that several servers have.

  // Memory for all pools.
  float* pools();
  // Puts together what servers have answered.
  void join(std::span<const Reply> replies);
  // Memory for the gradients of a server's pools.
  float* d_pools_of(std::size_t server);
  // Takes those of all pools, [count][dim], apart.
  void split(const float* d_pools);

 private:
  struct Part {
    std::vector<std::uint32_t> which;   // of the pools; none where the server has all
    std::vector<std::uint32_t> counts;  // of each its entries
    std::vector<std::uint32_t> places;
    std::vector<float> weights;
    std::vector<std::uint32_t> entries;  // as the batch numbers them; of maxima
    std::size_t width = 2;
    AlignedArray<float> d_pools;
  };
  bool asks_for_winners() const { return pooling_ == Pooling::max && !whole; }
  std::uint32_t winner(const Part& part, const std::byte* winners, std::size_t i) const;
  void add_sums(std::span<const Reply> replies);
  void take_largest(std::span<const Reply> replies);

  const std::size_t dim_;
  const Pooling pooling_;
  std::size_t first_ = 0, count_ = 0, entries_ = 0;
  bool weighted_ = false;
  std::vector<std::uint32_t> places_;  // by example, among the table's rows
  std::vector<float> shares_;          // of means: by pool, 1 over its entries
  std::vector<Part> parts_;            // by server
  AlignedArray<float> pools_;
  std::vector<std::uint32_t> won_;   // of maxima: by float, the server; or none
  std::vector<std::uint32_t> best_;  // likewise, the entry
};

}  // namespace leashed
