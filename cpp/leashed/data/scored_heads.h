// What is told of rows that were scored, of each of the labels that they have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "leashed/data/scored_rows.h"

namespace leashed {

// One thread's; those of several are merged. A label that is not known, a value of NaN, does not
// count among those of its head.
class ScoredHeads {
 public:
  // kept, at_once: as of ScoredRows, of each head, which has a limit of its own.
  explicit ScoredHeads(std::size_t heads, std::size_t kept = 0,
                       std::deque<UserLimit>* limits = nullptr, std::size_t at_once = 1);

  // Logits [rows][heads], of rows that have one label, or as many values as there are heads.
  void add(const float* logits, std::size_t rows, const Targets& targets);
  void merge(const ScoredHeads& other);
  void clear(const ScoredHeads* like = nullptr);
  bool empty() const;
  std::vector<Scores> scores();

 private:
  std::vector<ScoredRows> heads_;
  // Of the head that is added to.
  std::vector<float> logits_, weights_;
  std::vector<std::int32_t> labels_;
  std::vector<std::uint64_t> users_;
};

}  // namespace leashed
