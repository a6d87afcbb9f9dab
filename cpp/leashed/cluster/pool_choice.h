// Which features' rows embedding servers pool: a batch of B examples needs u distinct rows of a
// feature, which cost u(8 + 8d) bytes both ways, or B·f pools and E entries, which cost
// B·f·8d + 8u + 2E, where f servers have ids of an example (4E, where u is beyond 65,536). Which is
// less depends on data and servers alone, so it is found from the first batches, and holds for the
// run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "leashed/data/batch_view.h"
#include "leashed/kernels/embedding.h"

namespace leashed {

// Ids of a table, at most, of which a place has 2 bytes in a lookup, and not 4.
inline constexpr std::size_t kNarrowPlaces = std::size_t{1} << 16;

enum class PooledAt { rows, servers, automatic };  // rows: nowhere but where they are read

// What the features of one table read of it in a batch.
class TableUse {
 public:
  // Of so many ids; servers: of each the one that has its row, or null where one has all.
  TableUse(std::size_t ids, const std::uint32_t* servers)
      : servers_(servers), readers_(ids), seen_(ids) {}

  // One whose rows are there in any case.
  void take_rows(const std::vector<std::uint32_t>& entries);
  // One of which that is to be decided.
  void read(const std::vector<std::uint32_t>& entries);

  // Bytes both ways.
  struct Cost {
    double rows = 0, pools = 0;
    double entries = 0;  // of pools' those of places and weights
  };
  // What one of those takes; of an id of several its share.
  Cost cost(const IdColumn& column, std::size_t size, const std::vector<std::uint32_t>& entries,
            std::size_t dim, Pooling pooling);

 private:
  static constexpr std::uint32_t kRow = ~std::uint32_t{0};  // in place of a number

  // Calls f of each id that is among the entries, once.
  template <class F>
  void each_id(const std::vector<std::uint32_t>& entries, const F& f);

  const std::uint32_t* const servers_;
  std::vector<std::uint32_t> readers_;  // by id: how many features, or kRow
  std::vector<std::uint32_t> seen_;     // by id, or server: when last
  std::uint32_t now_ = 0;
};

class PoolChoice {
 public:
  using Cost = TableUse::Cost;
  static constexpr std::uint64_t kBatches = 8;  // that are looked at
  // Rows must cost more than so many times what pools do.
  static constexpr double kMargin = 1.2;
  // Of entries in a lookup; beyond that a feature's rows are read. The rest of its frame is for
  // ids, and for batches that have more.
  static constexpr double kEntries = 32 << 20;

  using Poolings = std::vector<std::optional<Pooling>>;  // by feature; none: it takes rows

  // poolings: of features that can be pooled; those that cannot always take rows.
  PoolChoice(PooledAt at, Poolings poolings);

  // For any thread.

  // Null: not decided yet.
  const Poolings* decided() const {
    return decided_.load(std::memory_order_acquire) ? &chosen_ : nullptr;
  }

  // One more batch, by feature. From any thread, while it is not decided.
  void add(const std::vector<Cost>& costs);
  // Of features that can be pooled.
  const Poolings& poolings() const { return poolings_; }

 private:
  const Poolings poolings_;
  Poolings chosen_;
  std::mutex mutex_;
  std::vector<Cost> sums_;
  std::uint64_t batches_ = 0;
  // Release by who decides, acquire by who asks: chosen_ is not written any more.
  std::atomic<bool> decided_{false};
};

}  // namespace leashed
