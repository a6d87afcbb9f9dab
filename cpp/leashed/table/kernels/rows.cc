// The formulas of the rules over many rows. What is left over of a row goes through the same
// arithmetic as whole vectors, so a row has the same bits as it would have in the vector.
#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/table/kernels.h"
#include "leashed/table/row_rules.h"
#include "leashed/update/kernels/clamp.h"
#include "leashed/update/kernels/math.h"
#include "leashed/update/kernels/mend.h"
#include "leashed/update/kernels/racy.h"

namespace leashed {
namespace {

LEASHED_INLINE LEASHED_RACY vfloat load(const float* p, std::size_t n) {
  return n == kLanes ? load_once(p) : load_some_once(p, n);
}
LEASHED_INLINE LEASHED_RACY void store(float* p, vfloat v, std::size_t n) {
  n == kLanes ? store_once(p, v) : store_some_once(p, v, n);
}
LEASHED_INLINE vfloat seen(vfloat g, float scale, const Coefficients& c) {
  return rounded(scale * clamp(g, vset(c.clip)));
}

// Weight decay of parameters that get the gradient g, as the vector's pass has it.
LEASHED_INLINE void decay(vfloat& theta, vfloat& g, const Coefficients& c) {
  if (c.coupled != 0) g = g + c.coupled * theta;
  if (c.shrink != 1) theta = rounded(c.shrink * theta);
}

// The squares of n ≤ kLanes numbers (what is in the lanes behind them is none).
LEASHED_INLINE void add_squares(vdouble& sums, vfloat v, std::size_t n) {
  const vdouble wide = __builtin_convertvector(v, vdouble);
  if (n == kLanes) {
    sums += wide * wide;
  } else {
    for (std::size_t lane = 0; lane < n; ++lane) sums[lane] += wide[lane] * wide[lane];
  }
}
LEASHED_INLINE float norm_of(const vdouble& sums) {
  double sum = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return static_cast<float>(__builtin_sqrt(sum));
}

// n ≤ kLanes parameters of a row, from the i-th on; the squares of their changes are added, where
// that is wanted.
template <class Rule, bool measures>
LEASHED_INLINE LEASHED_RACY void change(const RowUpdate& row, std::size_t dim, std::size_t i,
                                        std::size_t n, const Coefficients& c, vdouble& squares) {
  vfloat state[Rule::kStates + 1];
  for (std::size_t k = 0; k < Rule::kStates; ++k) {
    state[k] = load(row.values + (k + 1) * dim + i, n);
  }
  mend<Rule, true>(state, c);
  for (std::size_t k = Rule::kStates - Rule::kSquares; k < Rule::kStates; ++k) {
    state[k] = rounded(row.keep * state[k]);
  }
  vfloat g = seen(load(row.gradient + i, n), row.scale, c);
  const vfloat before = load(row.values + i, n);
  vfloat theta = before;
  decay(theta, g, c);
  theta = Rule::template step<Math>(theta, g, state, c);
  if constexpr (measures) add_squares(squares, theta - before, n);
  for (std::size_t k = 0; k < Rule::kStates; ++k) {
    store(row.values + (k + 1) * dim + i, state[k], n);
  }
  store(row.values + i, theta, n);
}

template <class Rule, bool measures>
LEASHED_INLINE LEASHED_RACY void update_rows(const RowUpdate* rows, std::size_t count,
                                             std::size_t dim, const Coefficients& coefficients,
                                             float* moved) {
  const Coefficients c = coefficients;  // a copy: nothing that is stored can change it
  for (const RowUpdate* row = rows; row != rows + count; ++row) {
    vdouble squares = {};
    std::size_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
      change<Rule, measures>(*row, dim, i, kLanes, c, squares);
    }
    if (i < dim) change<Rule, measures>(*row, dim, i, dim - i, c, squares);
    if constexpr (measures) moved[row - rows] = norm_of(squares);
  }
}
template <class Rule>
LEASHED_RACY void update(const RowUpdate* rows, std::size_t count, std::size_t dim,
                         const Coefficients& c, float* moved) {
  moved ? update_rows<Rule, true>(rows, count, dim, c, moved)
        : update_rows<Rule, false>(rows, count, dim, c, nullptr);
}

// Of n ≤ kLanes parameters; what they were changed by.
LEASHED_INLINE LEASHED_RACY vfloat change_rowwise(const RowUpdate& row, std::size_t i,
                                                  std::size_t n, vfloat v, const Coefficients& c) {
  vfloat g = seen(load(row.gradient + i, n), row.scale, c);
  const vfloat before = load(row.values + i, n);
  vfloat theta = before;
  decay(theta, g, c);
  theta = theta - Math::over_root(c.lr, g, v, c.epsilon);
  store(row.values + i, theta, n);
  return theta - before;
}

LEASHED_RACY void update_rowwise(const RowUpdate* rows, std::size_t count, std::size_t dim,
                                 const Coefficients& coefficients, float* moved) {
  const Coefficients c = coefficients;
  for (const RowUpdate* row = rows; row != rows + count; ++row) {
    vfloat squares = {};
    for (std::size_t i = 0; i < dim; i += kLanes) {
      const std::size_t n = min(kLanes, dim - i);
      vfloat g = seen(load(row->gradient + i, n), row->scale, c);
      if (c.coupled != 0) g = g + c.coupled * load(row->values + i, n);
      squares += rounded(g * g);
    }
    float sum = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum += squares[lane];
    float* const state = row->values + dim;
    const float v = row->keep * load_one(state) + sum / static_cast<float>(dim);
    store_one(state, v);
    vdouble changes = {};
    for (std::size_t i = 0; i < dim; i += kLanes) {
      const std::size_t n = min(kLanes, dim - i);
      const vfloat change = change_rowwise(*row, i, n, vset(v), c);
      if (moved) add_squares(changes, change, n);
    }
    if (moved) moved[row - rows] = norm_of(changes);
  }
}

template <class Rule>
constexpr RowPass pass() {
  if constexpr (requires { Rule::kRowwise; }) {
    return update_rowwise;
  } else {
    return update<Rule>;
  }
}

LEASHED_RACY void gather(float* to, const float* const* rows, std::size_t count, std::size_t dim) {
  constexpr std::size_t kAhead = 16;
  for (std::size_t r = 0; r < count; ++r) {
    if (r + kAhead < count) __builtin_prefetch(rows[r + kAhead]);
    std::size_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) vstore(to + i, load_once(rows[r] + i));
    if (i < dim) store_some_once(to + i, load_some_once(rows[r] + i, dim - i), dim - i);
    to += dim;
  }
}

void add(float* sums, std::size_t stride, const float* of, const std::uint32_t* places,
         std::size_t count, std::size_t dim) {
  for (std::size_t r = 0; r < count; ++r, of += dim) {
    float* const sum = sums + places[r] * stride;
    std::size_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) vstore(sum + i, vload(sum + i) + vload(of + i));
    for (; i < dim; ++i) sum[i] += of[i];
  }
}

LEASHED_RACY float sum_of_squares(const float* row, std::size_t dim) {
  vfloat squares = {};
  for (std::size_t i = 0; i < dim; i += kLanes) {
    const vfloat v = load(row + i, min(kLanes, dim - i));
    squares += v * v;
  }
  float sum = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) sum += squares[lane];
  return sum;
}

template <class List>
struct Passes;
template <class... All>
struct Passes<RuleList<All...>> {
  static constexpr RowPass kRules[] = {pass<All>()...};
};

}  // namespace

extern const RowKernels LEASHED_ISA_NAME(row_kernels);
constinit const RowKernels LEASHED_ISA_NAME(row_kernels) = {Passes<RowRules>::kRules, gather, add,
                                                            sum_of_squares};

}  // namespace leashed
