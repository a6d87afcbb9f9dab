// Clicks from a seed, in the shape of Criteo's: 13 numbers, features that are ids, and a label that
// a hidden model of them draws.
//
// Every row is a function of (seed, day, stream, row) alone: all randomness is Philox's, counted,
// so that rows can be made anywhere, in any order, by any number of threads.
//
//  - numbers are x = log(1 + count), of counts with a heavy tail; a missing one is 0;
//  - ids are 0..n − 1, id k with a probability ∝ (k + 1)^−exponent;
//  - the hidden model is a factorisation machine over all of them: with a weight w and a vector v
//    for each id, and for each number times its value,
//      logit = bias + scale (Σ w + Σ_{i<j} v_i · v_j),
//    bias and scale such that logits have the standard deviation kSpread and clicks the rate
//    kRate on each day;
//  - on each day after the first, every id's w and v are drawn anew with the probability `drift`:
//    that is the part of the model that moves;
//  - a training row is shown at any time of its day, and where it is clicked, that is told a time
//    later that is exponential, of the mean `delay`; what has not been told at the day's end is
//    labelled 0, as who trains on the day then has it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/data/drift.h"
#include "leashed/data/hidden_logit.h"
#include "leashed/data/zipf.h"

namespace leashed {

class ClickGenerator {
 public:
  static constexpr std::size_t kNumbers = 13;
  static constexpr double kRate = 0.25;
  static constexpr double kSpread = 1.3;

  struct Settings {
    std::uint64_t seed;
    std::vector<std::uint64_t> cardinalities;  // of each feature that is ids, 1 to Zipf::kMost
    double exponent;
    double drift;      // 0 to 1
    double delay = 0;  // of a click's label, in days
  };
  enum class Stream : std::uint32_t { train, test };
  // Where rows are written.
  struct Rows {
    float* x;                        // [count][kNumbers]
    std::uint64_t* ids;              // [count][features]
    std::int32_t* labels;            // [count]
    float* hidden;                   // [count]: the probability that each label is 1
    std::int32_t* counts = nullptr;  // [count][kNumbers]: of which x is made; −1 where missing
  };

  ClickGenerator(const Settings& settings, std::uint32_t day);

  std::size_t features() const { return zipf_.size(); }
  // Rows [first, first + count) of the day, on at most so many threads.
  void fill(Stream stream, std::uint64_t first, std::size_t count, const Rows& out,
            std::size_t threads) const;
  // Of a click, by the day's hidden model, for these inputs.
  double probability(const float* x, const std::uint64_t* ids) const {
    return logit_.probability(score(x, ids));
  }

 private:
  static constexpr std::size_t kDim = 4;
  // What the hidden model has for an id or a number.
  struct Part {
    float w;
    std::array<float, kDim> v;
  };

  // Writes the inputs of a row; a uniform number for its label comes out.
  double draw(std::uint64_t key, std::uint64_t row, float* x, std::uint64_t* ids,
              std::int32_t* counts = nullptr) const;
  std::uint64_t draw_id(std::uint64_t key, std::uint64_t row, std::size_t feature,
                        double first) const;
  double score(const float* x, const std::uint64_t* ids) const;  // before bias and scale
  bool told(std::uint64_t key, std::uint64_t row) const;         // by the day's end, if clicked
  Part part(std::uint64_t id, std::size_t feature) const;
  void calibrate();

  std::uint64_t seed_;
  Drift drift_;
  double delay_;
  std::vector<Zipf> zipf_;
  std::array<Part, kNumbers> numbers_;
  std::uint64_t model_key_;
  HiddenLogit logit_;
};

}  // namespace leashed
