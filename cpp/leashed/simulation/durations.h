// How long what workers do takes in virtual time: drawn by counters, so that a worker's third
// gradient takes as long whatever the others did before it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/simulation/load.h"

namespace leashed {

class Durations {
 public:
  virtual ~Durations() = default;

  // The worker's index-th, in nanoseconds, never negative; under a load, of one that begins at
  // `now`.
  std::int64_t operator()(std::uint32_t worker, std::uint64_t index, std::int64_t now = 0) const;
  // Of fetching what the index-th is to be computed on: drawn likewise, `fetch` times as long.
  std::int64_t fetching(std::uint32_t worker, std::uint64_t index, std::int64_t now) const;

 protected:
  // Uniform in (0, 1).
  struct Drawn {
    double own[2];  // the same at every draw of the worker
    double now[2];
    std::uint64_t index;
  };
  virtual double seconds(const Drawn& drawn) const = 0;

 private:
  friend std::unique_ptr<Durations> make_durations(const Choice& choice, std::uint64_t seed);
  std::int64_t time(std::uint32_t worker, std::uint64_t index, double scale,
                    std::int64_t now) const;

  std::uint64_t seed_ = 0;
  double fetch_ = 0;
  std::vector<double> slower_;
  Load load_;
};

// constant (seconds), normal (mean, deviation), exponential (mean), rates (mean, spread),
// heavy_tail (mean, shape), trace (the table `seconds`, again and again). With each go `fetch`, the
// table `slower`, what the first workers' are multiplied by, and the tables of a load (load.h).
std::unique_ptr<Durations> make_durations(const Choice& choice, std::uint64_t seed);

}  // namespace leashed
