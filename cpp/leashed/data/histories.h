// Clicks of users with histories, from a seed: what an item has to do with the items that a user
// clicked before decides.
//
// As of ClickGenerator, every row is a function of (seed, stream, row) alone.
//
//  - a user is any of n, and has kInterests categories of interest;
//  - a history is 0 to `longest` items, from the oldest on. An entry keeps to the interest of the
//  one
//    before it with the probability kStays, else another one takes over; it is an item of that
//    category with the probability kKeen, otherwise of any. Within a category, item k has a
//    probability ∝ (k + 1)^−exponent;
//  - the item that is shown is of the last interest in half of the rows, otherwise of any category;
//  - the hidden model has a weight w and a vector v for each item:
//      score = w + sqrt(Σ_j kFades^(n−1−j) max(0, [same category] + v_j · v)),
//    so that what counts is the part of the history that is about the item, and more so what is
//    recent: neither the sum of the history nor its set says it;
//  - on each day after the first, every item's w and v are drawn anew with the probability `drift`,
//    and the rows of a day are others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "leashed/data/drift.h"
#include "leashed/data/hidden_logit.h"
#include "leashed/data/zipf.h"

namespace leashed {

class HistoryGenerator {
 public:
  static constexpr double kRate = 0.25;
  static constexpr double kSpread = 1.3;

  struct Settings {
    std::uint64_t seed;
    std::uint64_t users, items,
        categories;       // items a multiple of categories; all up to Zipf::kMost
    std::size_t longest;  // history
    double exponent;
    double drift;  // 0 to 1
  };
  enum class Stream : std::uint32_t { train, test };
  // Where rows are written. The category of an item is its id modulo their number.
  struct Rows {
    std::uint64_t* users;   // [count]
    std::uint64_t* items;   // [count]: what is shown
    std::uint64_t* before;  // [count][longest]: items, and nothing beyond the length
    std::int64_t* lengths;  // [count]
    std::int32_t* labels;   // [count]
    float* hidden;          // [count]: the probability that each label is 1
  };

  HistoryGenerator(const Settings& settings, std::uint32_t day);

  std::size_t longest() const { return longest_; }
  // Rows [first, first + count), on at most so many threads.
  void fill(Stream stream, std::uint64_t first, std::size_t count, const Rows& out,
            std::size_t threads) const;

 private:
  static constexpr std::size_t kInterests = 3, kDim = 4;
  struct Row {
    std::uint64_t user, item;
    std::size_t length;
    double label;  // uniform
  };
  struct Part {
    float w;
    std::array<float, kDim> v;
  };

  Row draw(std::uint64_t key, std::uint64_t row, std::uint64_t* before) const;
  std::uint64_t item_of(std::uint64_t category, std::uint64_t key, std::uint64_t row,
                        std::uint64_t counter, double first) const;
  double score(std::uint64_t item, const std::uint64_t* before, std::size_t length) const;
  Part part(std::uint64_t item) const;

  std::uint64_t seed_, users_, categories_;
  std::size_t longest_;
  Zipf within_;  // a category
  Drift drift_;
  std::uint64_t model_key_, interests_key_;
  HiddenLogit logit_;
};

}  // namespace leashed
