// What a checkpoint must be to go on from.
#include <doctest/doctest.h>

#include "leashed/base/error.h"
#include "leashed/engine/checkpoint.h"
#include "leashed/sparse/runs.h"
#include "leashed/update/layout.h"

using namespace leashed;

TEST_CASE("what is behind must be a theta, also where nothing will be behind any more") {
  Checkpoint from;
  from.dimension = 40;
  from.vectors.resize(40);
  for (const std::size_t active : {0, 40}) {
    const SparseUse sparse{active};
    from.behind = {};
    CHECK_NOTHROW(require_fit(from, {40}, sparse));
    from.shrink.done.resize(1);
    for (const std::size_t size : {1, 39, 41}) {
      from.behind.resize(size);
      CHECK_THROWS_AS(require_fit(from, {40}, sparse), Error);
    }
    from.behind.resize(40);
    CHECK_NOTHROW(require_fit(from, {40}, sparse));
  }
}
