// The row gradients of pushes that are kept until they are applied, by slots, as Aggregator keeps
// those of the parameters. A row gets one update of what the pushes of a batch have for it: their
// sum in the order in which the slots are named, over the number of pushes, those included that
// have nothing for it. So rows take as large a step as the parameters (gba, 3), and with one push
// it is the push's own. Or, where that is asked for, over the number of pushes that have something
// for it: then a rare id takes as large a step as a frequent one.
//
// Each push's gradient of a row is damped for the row's own updates since it was pulled, by the
// table's staleness policy; what that leaves out is no part of the row's mean. The rule gets the
// mean weighted by these factors, which it clips, and their mean, which damps it. The update counts
// as stale as the stalest gradient in it; the others are folded into it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "leashed/server/aggregator.h"
#include "leashed/server/row_holder.h"

namespace leashed {

class RowAggregator {
 public:
  RowAggregator(RowHolder& holder, bool by_containing)
      : holder_(holder), by_containing_(by_containing) {}

  // Keeps them in the slot, which takes the memory; what it had before is given in exchange.
  void hold(std::uint32_t slot, RowKeys& keys, AlignedArray<float>& gradients);
  // What the slot has.
  void visit(Archive& archive, std::uint32_t slot);
  // One update of the rows of these slots, of which each is of `weight`; they are free then.
  // divisor: the number of pushes, where not those are counted that have a row's id; less what a
  // policy leaves out, unless that is to change nothing. t: updates of the parameters before it.
  RowPublication apply(std::span<const Aggregator::Part> parts, double divisor, std::uint64_t t,
                       bool keeps_divisor = false);
  RowKeys& keys(std::uint32_t slot) { return slots_[slot].keys; }
  // Lets go of them, without an update.
  void drop(RowKeys& keys) { holder_.release(keys); }

 private:
  struct Slot {
    RowKeys keys;
    AlignedArray<float> gradients;
    std::size_t row = 0, gradient = 0;  // of the table that is summed, the first
  };
  RowPublication apply_table(std::size_t table, std::span<const Aggregator::Part> parts,
                             double divisor, std::uint64_t t, bool keeps_divisor);
  void add(std::size_t table, Slot& slot, double weight);

  RowHolder& holder_;
  const bool by_containing_;
  std::vector<Slot> slots_;
  // Of one table: what a push has, and the rows of all pushes.
  Located pushed_, folded_;
  std::vector<float> factors_;
  Combiner combiner_;
  std::vector<std::uint64_t> distinct_;
  AlignedArray<float> sums_;
  std::vector<std::uint32_t> added_, left_out_;  // gradients, by row
  std::vector<float> damping_;                   // by row: the sum of the factors, then their mean
};

}  // namespace leashed
