#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "leashed/data/pass_batches.h"

using leashed::Batch, leashed::DatasetView, leashed::PassBatches;

TEST_CASE("the batches of a pass have each row once, and are as large as each other to one row") {
  for (const std::size_t rows : {1, 2, 7, 64, 65, 353}) {
    for (const std::size_t size : {1, 3, 16, 200, 1000}) {
      std::vector<float> x(rows);
      std::iota(x.begin(), x.end(), 0.0F);
      DatasetView data{};
      data.x = x.data();
      data.rows = rows;
      data.features = 1;
      const PassBatches batches(data, size, 17);
      const std::size_t per_pass = (rows + size - 1) / size;
      std::vector<float> first;
      for (std::uint64_t pass = 0; pass < 3; ++pass) {
        std::vector<float> seen;
        std::size_t least = rows, most = 0;
        for (std::uint64_t k = pass * per_pass; k < (pass + 1) * per_pass; ++k) {
          CHECK(batches.pass(k) == pass);
          Batch batch;
          batches.fill(k, batch);
          for (std::size_t i = 0; i < batch.view.size; ++i) seen.push_back(*batch.view.rows[i]);
          least = std::min(least, batch.view.size);
          most = std::max(most, batch.view.size);
        }
        CHECK(most <= size);
        CHECK(most <= least + 1);
        if (pass == 0) first = seen;
        if (pass == 1 && rows > 7) CHECK(seen != first);
        std::sort(seen.begin(), seen.end());
        CHECK(seen == x);
      }
    }
  }
}
