// How good predicted clicks are: of a stream of outputs and labels, in memory that does not grow.
//
// It lies with the data since all that it knows is what rows were to give (Targets): whoever has a
// batch's outputs can keep one, a worker before its update as well as a server that sees no model.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "leashed/data/dataset_view.h"

namespace leashed {

// One thread's; those of several are merged. Everything is counted in double precision, which is
// exact for 2^53 rows of weight 1.
class ClickMetrics {
 public:
  // Rows with these logits: log(p / (1 − p)) of the probability of the label 1; any other label
  // counts as 0.
  void add(std::span<const float> logits, const Targets& targets);
  void merge(const ClickMetrics& other);
  void clear();

  double rows() const { return rows_; }
  // What follows is NaN where a logit was, or where there is no row that it could be told from.

  // Mean weighted loss −y log p − (1 − y) log(1 − p): over the sum of the weights.
  double log_loss() const;
  // Its ratio to the entropy of the share of clicks, which is the best that one p for all rows
  // could reach (He et al., "Practical lessons from predicting clicks on ads at Facebook", ADKDD
  // 2014). NaN where all labels are the same.
  double normalised_entropy() const;
  // Clicks expected over clicks. NaN where there is none.
  double calibration() const;

  struct AreaUnderCurve {
    double value;
    double error;  // the exact one, of all pairs, is no further away
  };
  // The probability that of a click and a non-click, drawn by weight, the click has the larger
  // logit, ties counting half. NaN where all labels are the same.
  //
  // Logits are sorted into 2^16 bins by the upper half of their bits, which keeps their order: 128
  // bins for each power of two. A pair within one bin counts as a tie, and is wrong by at most a
  // half: error = ½ Σ_b p_b n_b / (P N), of the clicks p_b and non-clicks n_b in bin b.
  AreaUnderCurve area_under_curve() const;

 private:
  struct Bin {
    double clicks = 0, others = 0;
  };

  static constexpr std::size_t kBins = std::size_t{1} << 16;
  static constexpr std::size_t kBlock = kBins / 64;

  // Bins in blocks that are made when they are first needed: outputs are near each other.
  std::array<std::vector<Bin>, kBins / kBlock> blocks_;
  double rows_ = 0;
  double clicks_ = 0, others_ = 0;  // weighted, as are those that follow
  double loss_ = 0, expected_ = 0;
};

}  // namespace leashed
