#include "leashed/data/run_batches.h"

#include <utility>

namespace leashed {

void RunBatches::fill(std::uint64_t k, Batch& batch) const {
  std::size_t one = 0;
  batch.view = follow(k, 1, one);
}

void RunBatches::fill_span(std::uint64_t first, std::size_t count, Batch& batch) const {
  const auto whole = sampler_.span(first, count);
  batch.view = {nullptr, data_.targets.from(whole.first), count, nullptr,
                data_.sparse.from(whole.first)};
  if (whole.count == count) return;
  batch.sparse.clear();
  batch.labels.clear();
  batch.values.clear();
  batch.weights.clear();
  batch.users.clear();
  const auto copy = [](const auto* from, std::size_t rows, auto& to) {
    if (from) to.insert(to.end(), from, from + rows);
  };
  for (std::size_t done = 0; done < count;) {
    const auto part = sampler_.span(first + done, count - done);
    const Targets targets = data_.targets.from(part.first);
    batch.sparse.add(data_.sparse.from(part.first), part.count);
    copy(targets.labels, part.count, batch.labels);
    copy(targets.values, part.count * targets.width, batch.values);
    copy(targets.weights, part.count, batch.weights);
    copy(targets.users, part.count, batch.users);
    done += part.count;
  }
  const auto now = [](auto*& at, const auto& copies) {
    if (at) at = copies.data();
  };
  Targets& targets = batch.view.targets;
  now(targets.labels, batch.labels);
  now(targets.values, batch.values);
  now(targets.weights, batch.weights);
  now(targets.users, batch.users);
  batch.view.sparse = batch.sparse.view();
}

}  // namespace leashed
