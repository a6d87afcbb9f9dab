// How good predicted clicks are: of a stream of outputs and labels, in memory that does not grow.
//
// It lies with the data since all that it knows is what rows were to give (Targets): whoever has a
// batch's outputs can keep one, a worker before its update as well as a server that sees no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "leashed/base/isa.h"
#include "leashed/data/dataset_view.h"
#include "leashed/data/kernels.h"

namespace leashed {

// One thread's; those of several are merged. Rows of weight 1 are counted exactly, up to 2^53; sums
// are in double precision, of terms with a relative error below 1e-9 (where a probability is below
// 1e-307, it may be 0).
class ClickMetrics {
 public:
  explicit ClickMetrics(Isa isa = default_isa()) : kernels_(&score_kernels(isa)) {}
  ClickMetrics(const ClickMetrics& other) : kernels_(other.kernels_) { merge(other); }
  ClickMetrics(ClickMetrics&&) = default;

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
  static constexpr std::size_t kPlaces = std::size_t{1} << 17;  // a bin's non-clicks and clicks
  static constexpr std::size_t kBlocks = 32;                    // of ScoreSums::blocks
  static constexpr std::size_t kBlock = kPlaces / kBlocks;
  static constexpr std::size_t kFactors = 512;  // up to 2 each, so that no product overflows

  struct Totals {
    double clicks = 0, others = 0;  // weighted, as are those that follow
    double loss = 0, expected = 0;

    void operator+=(const Totals& t) {
      clicks += t.clicks;
      others += t.others;
      loss += t.loss;
      expected += t.expected;
    }
  };
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  // Zeros that the system has no memory for until they are written to: outputs are near each other.
  template <class T>
  using Bins = std::unique_ptr<T[], Free>;

  template <class T>
  static T* made(Bins<T>& bins);
  // f(place) of each that a row may have gone to.
  template <class F>
  void each_place(F f) const;
  Totals totals() const;
  void fold();

  const ScoreKernels* kernels_;
  Bins<std::uint64_t> counts_;  // of rows that were given without weights
  Bins<double> weights_;        // of the others
  double rows_ = 0;
  Totals folded_;  // of all but what is in the next
  ScoreSums sums_;
  std::size_t factors_ = 0;  // of each product there, at most
};

}  // namespace leashed
