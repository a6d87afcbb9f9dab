// Which rows make up batch k of sparse data: a run of rows that lie one after another, so that
// memory is read in order. The batches follow each other along longer runs, and these come in
// another order in every pass: a function of (seed, k) alone (docs/architecture.md, decision 9).
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "leashed/data/sampler.h"

namespace leashed {

class RunSampler {
 public:
  RunSampler(std::uint64_t seed, std::size_t rows, std::size_t batch_size)
      : rows_((assert(rows > 0 && batch_size > 0), rows)),
        batch_size_(batch_size),
        run_(run_of(batch_size)),
        per_pass_((rows + batch_size - 1) / batch_size),
        runs_(rows / (run_ * batch_size)),
        sampler_(seed, std::max<std::size_t>(1, runs_), 1) {}

  // The pass over the data that batch k belongs to.
  std::uint64_t pass(std::uint64_t k) const { return k / per_pass_; }
  // Batches of a run, which a worker claims together.
  static std::size_t run_of(std::size_t batch_size) {
    return std::max<std::size_t>(1, kRows / batch_size);
  }
  std::size_t run() const { return run_; }

  struct Rows {
    std::size_t first, count;  // rows
    std::size_t batches;
  };
  // Where batches k, k + 1, … lie: as many of the `most` next ones as follow each other. A pass's
  // last batch may have fewer rows than the others.
  Rows rows(std::uint64_t k, std::size_t most) const {
    const std::uint64_t pass = this->pass(k);
    const std::size_t place = k % per_pass_;
    std::size_t run = place / run_;
    const std::size_t within = place % run_;
    most = std::min({most, run_ - within, per_pass_ - place});
    if (run < runs_) sampler_.batch(pass * runs_ + run, &run);  // what fills no run comes last
    const std::size_t first = (run * run_ + within) * batch_size_;
    return {first, std::min(most * batch_size_, rows_ - first), most};
  }
  // Where the example at that place of the stream lies, with as many of the `most` next ones as
  // follow it there. The stream has a pass's batches one after another, and every pass all rows.
  Rows span(std::uint64_t place, std::size_t most) const {
    const std::uint64_t pass = place / rows_;
    const std::size_t within = place % rows_, of_run = run_ * batch_size_;
    std::size_t run = within / of_run;
    if (run >= runs_) return {within, std::min(most, rows_ - within), 0};
    sampler_.batch(pass * runs_ + run, &run);
    const std::size_t behind = within % of_run;
    return {run * of_run + behind, std::min(most, of_run - behind), 0};
  }

 private:
  static constexpr std::size_t kRows = 256;  // of a run: some microseconds

  const std::size_t rows_, batch_size_, run_, per_pass_, runs_;
  const Sampler sampler_;
};

}  // namespace leashed
