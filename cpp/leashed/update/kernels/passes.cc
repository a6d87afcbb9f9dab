// Whole vectors and what is left over go through the same arithmetic, so that all disciplines give
// the same bits for the same inputs, however they cut the vector.
#include "leashed/update/passes.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/update/kernels/clamp.h"
#include "leashed/update/kernels/math.h"
#include "leashed/update/kernels/mend.h"
#include "leashed/update/kernels/racy.h"
#include "leashed/update/rules.h"

namespace leashed {
namespace {

LEASHED_INLINE void stream(float* p, vfloat v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, v);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, v);
#elif defined(__x86_64__)
  _mm_stream_ps(p, v);
#else
  vstore(p, v);
#endif
}

template <Mode mode>
LEASHED_INLINE vfloat load(const float* p) {
  if constexpr (races(mode)) return load_once(p);
  return vload(p);
}
template <Mode mode>
LEASHED_INLINE void store(float* p, vfloat v) {
  if constexpr (streams(mode)) {
    stream(p, v);
    asm volatile("" : : : "memory");  // once and here, as store_once
  } else if constexpr (races(mode)) {
    store_once(p, v);
  } else {
    vstore(p, v);
  }
}

// kLanes parameters: theta, gradient and states in vectors, theta and states changed.
template <class Rule, bool bare>
LEASHED_INLINE void step(vfloat& theta, vfloat g, vfloat* state, const Coefficients& c) {
  if constexpr (bare) {
    theta = Rule::template step<Math>(theta, rounded(c.scale * g), state, c);
  } else {
    const vfloat seen = rounded(c.scale * clamp(g, vset(c.clip))) + c.coupled * theta;
    for (std::size_t k = Rule::kStates - Rule::kSquares; k < Rule::kStates; ++k) {
      state[k] = rounded(c.keep * state[k]);
    }
    theta = Rule::template step<Math>(rounded(c.shrink * theta), seen, state, c);
  }
}

LEASHED_INLINE void add_squares(vdouble& sums, vfloat change) {
  const vdouble wide = __builtin_convertvector(change, vdouble);
  sums += wide * wide;
}

// Parameters [i, i + n), fewer than a vector: the same vectors, 0 where there are no parameters.
template <class Rule, bool racy, bool bare>
LEASHED_INLINE void some(float* next, const float* current, std::size_t stride,
                         const float* gradient, std::size_t i, std::size_t n, const Coefficients& c,
                         vdouble& sums) {
  float lanes[Rule::kStates + 2][kLanes] = {};
  for (std::size_t k = 0; k <= Rule::kStates; ++k) {
    const float* from = current + k * stride + i;
    for (std::size_t j = 0; j < n; ++j) lanes[k][j] = racy ? load_one(from + j) : from[j];
  }
  for (std::size_t j = 0; j < n; ++j) lanes[Rule::kStates + 1][j] = gradient[i + j];

  vfloat theta = vload(lanes[0]);
  vfloat state[Rule::kStates + 1];
  for (std::size_t k = 0; k < Rule::kStates; ++k) state[k] = vload(lanes[k + 1]);
  mend<Rule, racy>(state, c);
  const vfloat before = theta;
  step<Rule, bare>(theta, vload(lanes[Rule::kStates + 1]), state, c);
  add_squares(sums, theta - before);

  vstore(lanes[0], theta);
  for (std::size_t k = 0; k < Rule::kStates; ++k) vstore(lanes[k + 1], state[k]);
  for (std::size_t k = 0; k <= Rule::kStates; ++k) {
    float* to = next + k * stride + i;
    for (std::size_t j = 0; j < n; ++j) {
      if constexpr (racy) {
        store_one(to + j, lanes[k][j]);
      } else {
        to[j] = lanes[k][j];
      }
    }
  }
}
template <class Rule, bool racy, bool bare>
struct Rest {
  __attribute__((noinline)) static void update(float* next, const float* current,
                                               std::size_t stride, const float* gradient,
                                               std::size_t i, std::size_t n, const Coefficients& c,
                                               vdouble& sums) {
    some<Rule, false, bare>(next, current, stride, gradient, i, n, c, sums);
  }
};
template <class Rule, bool bare>
struct Rest<Rule, true, bare> {
  LEASHED_RACY __attribute__((noinline)) static void update(float* next, const float* current,
                                                            std::size_t stride,
                                                            const float* gradient, std::size_t i,
                                                            std::size_t n, const Coefficients& c,
                                                            vdouble& sums) {
    some<Rule, true, bare>(next, current, stride, gradient, i, n, c, sums);
  }
};

template <class Rule, Mode mode, bool measure, bool bare>
LEASHED_INLINE double run(float* next, const float* current, std::size_t stride,
                          const float* gradient, std::size_t begin, std::size_t end,
                          const Coefficients& coefficients) {
  const Coefficients c = coefficients;  // a copy: nothing that is stored can change it
  using RestOf = Rest<Rule, races(mode), bare>;
  vdouble sums = {}, rest = {};
  std::size_t i = begin;
  if constexpr (streams(mode)) {  // such stores need vectors that are aligned
    const std::size_t unaligned = (kLanes - begin % kLanes) % kLanes;
    const std::size_t head = unaligned < end - begin ? unaligned : end - begin;
    if (head) RestOf::update(next, current, stride, gradient, i, head, coefficients, rest);
    i += head;
  }
  for (; i + kLanes <= end; i += kLanes) {
    vfloat state[Rule::kStates + 1];
    for (std::size_t k = 0; k < Rule::kStates; ++k) {
      state[k] = load<mode>(current + (k + 1) * stride + i);
    }
    mend<Rule, races(mode)>(state, c);
    vfloat theta = load<mode>(current + i);
    const vfloat before = theta;
    step<Rule, bare>(theta, vload(gradient + i), state, c);
    for (std::size_t k = 0; k < Rule::kStates; ++k) {
      store<mode>(next + (k + 1) * stride + i, state[k]);
    }
    store<mode>(next + i, theta);
    if constexpr (measure) add_squares(sums, theta - before);
  }
  if (i < end) RestOf::update(next, current, stride, gradient, i, end - i, coefficients, rest);
#if defined(__x86_64__)
  // Streaming stores are not ordered by the release that publishes the vector; this orders them.
  if constexpr (streams(mode)) _mm_sfence();
#endif
  double total = 0;
  if constexpr (measure) {
    sums += rest;
    for (std::size_t lane = 0; lane < kLanes; ++lane) total += sums[lane];
  }
  return total;
}

template <class Rule, Mode mode, bool measure, bool bare>
double pass(float* next, const float* current, std::size_t stride, const float* gradient,
            std::size_t begin, std::size_t end, const Coefficients& c) {
  return run<Rule, mode, measure, bare>(next, current, stride, gradient, begin, end, c);
}
template <class Rule, Mode mode, bool measure, bool bare>
LEASHED_RACY double racy_pass(float* next, const float* current, std::size_t stride,
                              const float* gradient, std::size_t begin, std::size_t end,
                              const Coefficients& c) {
  return run<Rule, mode, measure, bare>(next, current, stride, gradient, begin, end, c);
}

// What measures never streams: it is rare, and a pass more of each rule is not worth it.
template <class Rule>
constexpr RulePasses passes() {
  constexpr Mode kCached = Mode::cached, kRacy = Mode::racy;
  constexpr Mode kStreamed = Mode::streamed, kRacyStreamed = Mode::racy_streamed;
  return {{{pass<Rule, kCached, false, true>, pass<Rule, kStreamed, false, true>,
            racy_pass<Rule, kRacy, false, true>, racy_pass<Rule, kRacyStreamed, false, true>},
           {pass<Rule, kCached, true, true>, pass<Rule, kCached, true, true>,
            racy_pass<Rule, kRacy, true, true>, racy_pass<Rule, kRacy, true, true>}},
          {{pass<Rule, kCached, false, false>, pass<Rule, kStreamed, false, false>,
            racy_pass<Rule, kRacy, false, false>, racy_pass<Rule, kRacyStreamed, false, false>},
           {pass<Rule, kCached, true, false>, pass<Rule, kCached, true, false>,
            racy_pass<Rule, kRacy, true, false>, racy_pass<Rule, kRacy, true, false>}},
          Rule::kStates,
          Rule::kSquares};
}

template <class List>
struct Table;
template <class... All>
struct Table<RuleList<All...>> {
  static constexpr RulePasses kRules[] = {passes<All>()...};
};

}  // namespace

extern const PassTable LEASHED_ISA_NAME(pass_table);
constinit const PassTable LEASHED_ISA_NAME(pass_table) = {Table<Rules>::kRules};

}  // namespace leashed
