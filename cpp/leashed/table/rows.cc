#include "leashed/table/rows.h"

namespace leashed {
namespace {

constexpr std::size_t kGrain = 16;  // bytes, of which a row has a multiple

}  // namespace

std::size_t Rows::bytes_of_row(std::size_t floats) {
  const std::size_t bytes = sizeof(RowHead) + floats * sizeof(float);
  return (bytes + kGrain - 1) / kGrain * kGrain;
}

Rows::Rows(std::size_t count, std::size_t floats)
    : count_(count),
      floats_(floats),
      stride_(bytes_of_row(floats)),
      reserved_(count, stride_, "a table's rows"),
      memory_(reserved_.data()) {}

}  // namespace leashed
