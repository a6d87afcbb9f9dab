// The ids of a batch's rows, gathered feature by feature from wherever the rows lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "leashed/data/drawing.h"
#include "leashed/data/id_columns.h"

namespace leashed {

// Memory of one thread; what it has grown to it keeps.
class GatheredColumns {
 public:
  // The columns of these rows, until the next call. Throws Error where a feature has 2^32 ids or
  // more in them.
  std::span<const IdColumn> gather(std::span<const IdFeature> features,
                                   std::span<const std::size_t> rows, const Drawing& drawing = {});

 private:
  struct Memory {
    IdColumn bags(const IdFeature& feature, std::span<const std::size_t> rows);
    IdColumn draw(const Negatives& negatives, std::size_t rows, const Drawing& drawing);

    std::vector<std::uint64_t> ids;
    std::vector<std::uint32_t> offsets;
    std::vector<float> weights;
  };

  void copy_beside(std::span<const IdFeature> beside, std::size_t first,
                   std::span<const std::size_t> rows);

  std::vector<Memory> memory_;  // by feature
  std::vector<IdColumn> columns_;
};

}  // namespace leashed
