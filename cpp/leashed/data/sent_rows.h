// Rows that others read and send: what is to be asked of them, and what has come, with a bounded
// number of rows in memory.
//
// Rows are expected, asked for, there, or none of these. Those that somebody waits for are asked
// for at once; those that are expected, the first ones first, while there is room. What was asked
// for and does not come, since a connection is lost, is asked for again. Positions go on from one
// pass over the rows to the next.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/data/numbered_rows.h"

namespace leashed {

class SentRows final : public NumberedRows {
 public:
  struct Settings {
    std::uint64_t rows;       // of a pass; 0: not known yet, of the only one
    std::uint64_t passes;     // 0: without end
    std::size_t at_once;      // rows that are asked for at once, at most
    std::uint64_t room;       // rows that are there or asked for, but for those that are waited for
    std::uint64_t stripe;     // rows that one of those who read has, before the next has as many
    std::size_t readers = 1;  // who read
  };
  struct Span {
    std::uint64_t first, count;
  };

  SentRows(const RowLayout& layout, const Settings& settings)
      : layout_(layout), settings_(settings), rows_(settings.rows == 0 ? kMost : settings.rows) {}

  // For who asks and receives.
  // What is to be asked of the readers of whom that says so, which is asked for then; of one pass.
  // Waits so many seconds for it. None: there is nothing.
  std::optional<Span> wanted(const std::vector<bool>& readers, double seconds);
  // Positions are going to be taken.
  void expect(std::uint64_t first, std::uint64_t count);
  // None is any more, but by who waits: what is there goes, and what was asked for when it comes.
  void forget();
  // Such a span has come, or does not; nothing, where it has been forgotten since it was asked for.
  // Throws Error where it has other rows. Of what does not come, whether somebody waits for it.
  void give(const Span& span, RowBlock rows);
  bool lost(const Span& span);
  // No more comes, and why; whoever waits is told.
  void fail(std::string why);
  // There are so many rows, which was not known: before any behind them is asked for.
  void know(std::uint64_t rows);
  // The row of a position.
  std::uint64_t row(std::uint64_t position) const;
  std::uint64_t held() const;
  bool stopped() const;

  void start(std::uint64_t = 0) override {}
  std::size_t take(std::uint64_t first, std::size_t count, RowBlock& to, double& waited) override;
  bool has(std::uint64_t row) override;
  std::optional<std::uint64_t> rows(std::uint64_t most, double) override;
  std::uint64_t pass_rows() const override;
  void stop() override;
  void end() override { stop(); }
  const RowLayout& layout() const override { return layout_; }

 private:
  struct Piece {
    RowBlock rows;
    std::uint64_t left;  // that are not taken
  };
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  // Under the lock.
  std::uint64_t end_of_all() const {
    return settings_.passes == 0 ? ~std::uint64_t{0} : rows_ * settings_.passes;
  }
  bool of_those(std::uint64_t position, const std::vector<bool>& readers) const;
  std::optional<Span> find(const std::vector<bool>& readers) const;
  // The first position from there on that is neither there nor asked for, at most `end`.
  std::uint64_t first_missing(std::uint64_t first, std::uint64_t end) const;
  // As far as that a span from there may reach, which nobody has.
  std::uint64_t reach(std::uint64_t first, std::uint64_t end) const;
  void expect_no_more(std::uint64_t first, std::uint64_t end);

  const RowLayout layout_;
  const Settings settings_;

  mutable std::mutex mutex_;
  std::condition_variable there_, wanted_;
  // Under the lock.
  std::uint64_t rows_;  // of a pass; kMost: not known yet
  // By first position, disjoint.
  std::map<std::uint64_t, std::uint64_t> expected_, asked_;  // their ends
  std::map<std::uint64_t, Piece> pieces_;
  std::vector<Span> waiting_;  // what somebody waits for
  std::uint64_t held_ = 0;     // rows there or asked for
  std::string failure_;
  bool stopped_ = false;
};

}  // namespace leashed
