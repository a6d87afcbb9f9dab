#include "leashed/table/rows.h"

namespace leashed {
namespace {

constexpr std::size_t kGrain = 16;  // bytes, of which a row has a multiple

}  // namespace

std::size_t Rows::bytes_of_row(std::size_t floats, bool headed) {
  const std::size_t bytes = (headed ? sizeof(RowHead) : 0) + floats * sizeof(float);
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

Rows::Rows(std::size_t count, std::size_t floats, bool headed)
    : count_(count),
      floats_(floats),
      stride_(bytes_of_row(floats, headed)),
      head_(headed ? sizeof(RowHead) : 0),
      reserved_(count, stride_, "a table's rows"),
      memory_(reserved_.data()) {}

}  // namespace leashed
