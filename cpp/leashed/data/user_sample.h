// AUC user by user, of a stream of outputs and labels, in memory that does not grow.
//
// A user's AUC takes all of the user's rows, so some users are kept, with every row, and others not
// at all: those whose id's hash is below a limit, at first all of them. Where the memory is full
// the limit is halved, and the rows of those above it are let go. Since a limit only falls, who is
// below it has been kept from the beginning, and who is below the lowest of several samples' has
// been by each of them: so samples of several threads can be merged. What is told of the users kept
// is exact; they are drawn by a hash, which is how far it may be from that of all.
//
// The limit is halved no more often than it takes for the rows kept to fit, so who is kept follows
// from the rows, not from their order. Samples for as many rows as the one that they are merged
// into halve theirs no more often than that one has to: what it tells is the same bits whoever of
// them had which rows. Samples that share a limit (user_limit.h) need no more memory than it, all
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "leashed/data/dataset_view.h"
#include "leashed/data/user_limit.h"

namespace leashed {

class UserSample {
 public:
  // Of so many rows at most, 1 at least. Of samples that share a limit, which is for as many, each
  // counts its rows there so many at once: so many may each have beyond it.
  explicit UserSample(std::size_t most, UserLimit* shared = nullptr, std::size_t at_once = 1)
      : most_(most), shared_(shared), at_once_(at_once) {}

  // Rows with these logits, whose targets tell the users. A row of weight 0 is passed over.
  void add(std::span<const float> logits, const Targets& targets);
  void merge(const UserSample& other);
  // Begins anew, with a limit that has been halved so often.
  void clear(unsigned halvings = 0);
  unsigned halvings() const { return halvings_; }
  std::size_t rows() const { return rows_.size(); }

  // GAUC = Σ_u w_u AUC_u / Σ_u w_u over users u that have clicks and others, w_u being the weight
  // of all of u's rows (Zhu et al., "Optimized cost per click in Taobao display advertising", KDD
  // 2017, eq. 11). NaN where there is no such user, or a logit was NaN.
  struct Grouped {
    double value;
    // Half of the interval that holds that of all users with 95%: 0 where all are kept, else of a
    // ratio of sums over a sample; NaN where that has less than two users.
    double error;
    std::uint64_t users;  // in it
    double share;         // of all users, those that are kept
  };
  Grouped area_under_curves();

 private:
  struct Row {
    std::uint64_t user;  // hashed
    float logit;
    float weight;  // negative where there was no click

    // By weight too, so that sums are of one order whatever the rows came in.
    bool operator<(const Row& other) const {
      return std::tie(user, logit, weight) < std::tie(other.user, other.logit, other.weight);
    }
  };

  void sort();
  bool keeps(std::uint64_t user) const { return UserLimit::keeps(halvings_, user); }
  // Lets go of users until there is room for it, or it goes itself; whether it is kept.
  bool keep(const Row& row);
  void halve(unsigned halvings);

  std::size_t most_;
  UserLimit* shared_;
  std::size_t at_once_;
  UserLimit::Counts uncounted_{};  // there
  std::size_t uncounted_rows_ = 0;
  unsigned halvings_ = 0;
  bool nan_ = false;
  std::vector<Row> rows_;
  std::size_t sorted_ = 0;  // of them, from the first on
};

}  // namespace leashed
