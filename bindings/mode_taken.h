// What checkpoints have of a policy server, for Python.
#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "leashed/cluster/policy_checkpoint.h"
#include "leashed/server/row_holder.h"

namespace leashed {

// What a policy server goes on from: the state, and how many nodes there were.
using PyBegun = std::pair<Checkpoint, std::size_t>;
using PyWords = pybind11::array_t<std::uint64_t, pybind11::array::c_style>;
using PyNumbers = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
// And which words of the mode's are of rows that are held, what is held by slot, lines of the first
// server's log, by table floats from one gradient of a row to the next, and which batches are
// unfinished, or were had, as TakenMode has them.
using PyTaken = std::tuple<Checkpoint, std::size_t, std::pair<std::size_t, std::size_t>,
                           std::vector<std::uint64_t>, std::uint64_t, std::vector<std::size_t>,
                           PyNumbers, PyNumbers>;

template <class Service>
PyTaken taken_from(Service& service, TakenMode taken, const RowHolder* rows) {
  std::vector<std::size_t> strides;
  if (rows) {
    for (const auto& table : rows->tables()) strides.push_back(table->gradient_stride());
  }
  return {std::move(taken.state),      service.server().nodes(), {taken.rows_begin, taken.rows_end},
          std::move(taken.held),       service.position(),       std::move(strides),
          std::move(taken.unfinished), std::move(taken.had)};
}

}  // namespace leashed
