// The classical Hogwild loop, as one writes it first: every thread goes through its share of the
// rows, one example at a time, and updates the shared weights coordinate by coordinate. Built and
// called by bench/sections/sparse.py.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

extern "C" void hogwild(const std::int64_t* offsets, const std::int32_t* columns,
                        const float* values, const float* y, std::size_t rows, float* w, float* b,
                        float lr, std::size_t passes, std::size_t threads) {
  const auto work = [=](std::size_t rank) {
    const std::size_t begin = rows * rank / threads, end = rows * (rank + 1) / threads;
    for (std::size_t pass = 0; pass < passes; ++pass) {
      for (std::size_t i = begin; i < end; ++i) {
        float margin = *b;
        for (std::int64_t j = offsets[i]; j < offsets[i + 1]; ++j) {
          margin += w[columns[j]] * values[j];
        }
        const float step = lr * (1.0f / (1.0f + std::exp(-margin)) - y[i]);
        for (std::int64_t j = offsets[i]; j < offsets[i + 1]; ++j) {
          w[columns[j]] -= step * values[j];
        }
        *b -= step;
      }
    }
  };
  std::vector<std::thread> team;
  for (std::size_t rank = 0; rank < threads; ++rank) team.emplace_back(work, rank);
  for (std::thread& thread : team) thread.join();
}
