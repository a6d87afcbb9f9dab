// The rows of tables that a server holds, for one thread at a time: any number of workers have
// pulled rows, each a copy as of then, and update them by keys when they push. So thousands of
// workers need no seat each in the tables, and no gradients but of who computes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "leashed/base/archive.h"
#include "leashed/row_store/combine_batch.h"
#include "leashed/table/row_placement.h"

namespace leashed {

// Where the gradients of a batch's distinct rows go, one table after the other.
struct RowKeys {
  struct Part {
    std::uint32_t count = 0;                                  // of the table's rows
    std::uint32_t unadmitted = 0, deferred = 0, refused = 0;  // of the ids that have none

    void visit(Archive& archive) { archive(count, unadmitted, deferred, refused); }
  };
  std::vector<Part> parts;                    // by table; empty: nothing is pulled
  std::vector<std::uint32_t> rows, versions;  // as Located has them
  std::vector<std::uint64_t> ids;             // of these
};

// What a worker pushes: the rows that it pulled, and their gradients.
struct RowPush {
  RowKeys keys;
  AlignedArray<float> gradients;
};

// What a worker has pulled; the copies are there also where the rows have been let go.
struct PulledRows {
  RowKeys keys;
  std::vector<std::size_t> counts;    // of copies, by table; empty: there are none
  AlignedArray<float> copies;         // of the rows
  std::vector<std::uint32_t> places;  // of the entries, one feature after the other
};

// Where a gradient source finds what was pulled, of who computes.
struct ShownRows {
  std::vector<TableRows> tables;
  std::vector<std::vector<const float*>> values;  // by table
  std::vector<const std::uint32_t*> places;       // by feature
};

class RowHolder {
 public:
  // Of each feature the table's number among `tables`. begun: updates of the run that the tables
  // have made already. Throws Error where a table has no seat left.
  RowHolder(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> features_of_tables,
            std::uint64_t begun = 0);
  ~RowHolder();  // the tables have made so many steps
  RowHolder(const RowHolder&) = delete;

  // Finds and copies the rows of a batch, in place of what was pulled before, and admits new ids.
  // Throws Error where an id is no row of its table. Where it throws, nothing is held.
  void pull(const BatchView& batch, PulledRows& pulled);
  // The same of distinct ids, by table: the i-th one's row goes to to[table][i · dim ...].
  void pull(std::span<const std::span<const std::uint64_t>> ids, RowKeys& keys,
            std::span<float* const> to);
  // Copies them for who only reads: nothing is admitted, counted or held.
  void look(std::span<const std::span<const std::uint64_t>> ids, std::span<float* const> to);
  // Copies those of one server's rows again, as of now, that were pulled before.
  void renew(PulledRows& pulled, const RowPlacement& placement, std::size_t server);
  // Fills in the view's tables and places, valid as long as what is given; their gradients are
  // `gradients`, which is made as large as they need and 0. The batch is the one that was pulled.
  // For any thread, whatever another does with the holder.
  void show(const PulledRows& pulled, BatchView& batch, ShownRows& shown,
            AlignedArray<float>& gradients) const;
  // Takes what is pushed apart, for each server its own rows in their order; how many of a table's
  // ids have none, and why, is for the server of one of these.
  void split(RowKeys& keys, const float* gradients, const RowPlacement& placement,
             std::span<RowPush*> pushes);
  // Applies them. t: updates of the parameters before this one.
  RowPublication push(RowKeys& keys, const float* gradients, std::uint64_t t);
  // The same where the i-th row's is gradients[table][i · dim ...].
  RowPublication push(RowKeys& keys, std::span<const float* const> gradients, std::uint64_t t);
  // The same where no table but that one has rows: a step of its alone, which it counts itself.
  RowPublication push_apart(RowKeys& keys, std::size_t table, const float* gradients);
  // Lets the rows go, without an update.
  void release(RowKeys& keys);
  // Applies gradients of rows of one table that have been weighed (Table::weigh), each damped by
  // its factor.
  RowPublication push_weighed(std::size_t table, const Located& located, const float* gradients,
                              const float* factors, std::uint64_t t);

  // Ids and versions; what is read are keys of the rows that the ids have now.
  void visit(Archive& archive, RowKeys& keys);

  const std::vector<std::shared_ptr<Table>>& tables() const { return tables_; }
  // For the rows that `keys` has of a table, from the first-th of all on.
  void locate(const RowKeys& keys, std::size_t table, std::size_t first, Located& located) const;
  // Floats of so many gradients of a table, from one table's to the next one's.
  std::size_t gradients_of(std::size_t table, std::size_t count) const;

 private:
  // Of the ids that found_ has.
  void find_and_copy(RowKeys& keys, std::span<float* const> to);
  // of(table): its first gradient, and floats from one to the next.
  template <class Of>
  RowPublication push_each(RowKeys& keys, std::uint64_t t, const Of& of);
  // One more of what is pulled or pushed has that row, or one less.
  void hold(std::size_t table, std::uint32_t row);
  void release(std::size_t table, std::uint32_t row);
  // Floats from one table's copies of so many rows to the next one's.
  std::size_t copies_of(std::size_t table, std::size_t count) const;

  const std::vector<std::shared_ptr<Table>> tables_;
  const std::vector<std::size_t> features_of_tables_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<bool> evicts_;          // by table
  std::vector<std::uint64_t> begun_;  // by table: the steps it had made before the run
  std::uint64_t steps_ = 0;           // of the run
  // By table that evicts: how many have a row, which it holds for all of them.
  std::vector<std::unordered_map<std::uint32_t, std::uint32_t>> held_;
  // Of the batch that is pulled or pushed.
  Combiner combiner_;
  FoundRows found_;
  std::vector<float*> copies_;  // by table
};

}  // namespace leashed
