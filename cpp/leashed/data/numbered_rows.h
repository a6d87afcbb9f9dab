// Rows by number, which come while they are used: read here, or sent by who reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "leashed/data/row_block.h"

namespace leashed {

class StandardNumbers;

class NumberedRows {
 public:
  virtual ~NumberedRows() = default;
  // Rows before `first` will not be taken. Once; a call after that changes nothing.
  virtual void start(std::uint64_t first = 0) = 0;
  // Appends rows [first, first + count), fewer where there are no more or it is stopped; waits for
  // them, and adds the seconds to `waited`. Throws why they do not come. From any thread.
  virtual std::size_t take(std::uint64_t first, std::size_t count, RowBlock& to,
                           double& waited) = 0;
  // Whether there is such a row; waits until that is known. False once it is stopped.
  virtual bool has(std::uint64_t row) = 0;
  // How many rows there are, or `most` where these are fewer; waits so many seconds until that is
  // known. None: it is not. 0 once it is stopped.
  virtual std::optional<std::uint64_t> rows(std::uint64_t most, double seconds) = 0;
  // Rows of a pass, where one of a later pass than the first has been taken; 0: not known yet.
  virtual std::uint64_t pass_rows() const = 0;
  // The pass that a row is of which has been taken.
  std::uint64_t pass(std::uint64_t row) const {
    const std::uint64_t rows = pass_rows();
    return rows == 0 ? 0 : row / rows;
  }
  // Ends all waiting, and whatever makes rows come soon.
  virtual void stop() = 0;
  // And waits until that has ended. From any thread.
  virtual void end() = 0;
  // What numbers are standardised by; null: they are not.
  virtual const StandardNumbers* standard() const { return nullptr; }
  virtual const RowLayout& layout() const = 0;
};

}  // namespace leashed
