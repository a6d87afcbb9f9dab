// The classical Hogwild loop of a factorisation machine, as one writes it first: every thread goes
// through its share of the rows, one example at a time, and updates the shared weights and factors
// coordinate by coordinate. The number of factors is a constant, so that the compiler has vectors
// of them. Built and called by bench/sections/factorisation.py.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kFactors = 8;

struct Sgd {
  void operator()(float* theta, float*, float gradient) const { *theta -= lr * gradient; }
  float lr;
};
struct Adagrad {
  void operator()(float* theta, float* squares, float gradient) const {
    *squares += gradient * gradient;
    *theta -= lr * gradient / (std::sqrt(*squares) + 1e-10f);
  }
  float lr;
};

struct Rows {
  const std::int64_t* offsets;
  const std::int32_t* columns;
  const float* values;
  const float* y;
  std::size_t rows;
};

// w [columns], v [columns][kFactors] and b, and as much for the rule behind each.
struct Parameters {
  float *w, *v, *b;
  float *w_squares, *v_squares, *b_squares;
};

template <class Rule>
void work(const Rows& data, const Parameters& p, Rule step, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    float linear = *p.b, sum[kFactors] = {}, squares[kFactors] = {};
    for (std::int64_t j = data.offsets[i]; j < data.offsets[i + 1]; ++j) {
      const auto column = static_cast<std::size_t>(data.columns[j]);
      const float x = data.values[j];
      const float* v = p.v + column * kFactors;
      linear += p.w[column] * x;
      for (std::size_t f = 0; f < kFactors; ++f) {
        sum[f] += v[f] * x;
        squares[f] += v[f] * x * v[f] * x;
      }
    }
    float margin = linear;
    for (std::size_t f = 0; f < kFactors; ++f) margin += 0.5f * (sum[f] * sum[f] - squares[f]);
    const float residual = 1.0f / (1.0f + std::exp(-margin)) - data.y[i];
    for (std::int64_t j = data.offsets[i]; j < data.offsets[i + 1]; ++j) {
      const auto column = static_cast<std::size_t>(data.columns[j]);
      const float x = data.values[j];
      float* __restrict v = p.v + column * kFactors;
      float* __restrict v_squares = p.v_squares + column * kFactors;
      step(p.w + column, p.w_squares + column, residual * x);
      for (std::size_t f = 0; f < kFactors; ++f) {
        step(v + f, v_squares + f, residual * x * (sum[f] - v[f] * x));
      }
    }
    step(p.b, p.b_squares, residual);
  }
}

template <class Rule>
void train(const Rows& data, const Parameters& p, Rule rule, std::size_t passes,
           std::size_t threads) {
  std::vector<std::thread> team;
  for (std::size_t rank = 0; rank < threads; ++rank) {
    team.emplace_back([=] {
      for (std::size_t pass = 0; pass < passes; ++pass) {
        work(data, p, rule, data.rows * rank / threads, data.rows * (rank + 1) / threads);
      }
    });
  }
  for (std::thread& thread : team) thread.join();
}

}  // namespace

extern "C" void hogwild_fm(const std::int64_t* offsets, const std::int32_t* columns,
                           const float* values, const float* y, std::size_t rows, float* w,
                           float* v, float* b, float* w_squares, float* v_squares, float* b_squares,
                           float lr, int adagrad, std::size_t passes, std::size_t threads) {
  const Rows data{offsets, columns, values, y, rows};
  const Parameters p{w, v, b, w_squares, v_squares, b_squares};
  if (adagrad != 0) {
    train(data, p, Adagrad{lr}, passes, threads);
  } else {
    train(data, p, Sgd{lr}, passes, threads);
  }
}
