// Vectors and the tail go through the same arithmetic, so that all disciplines give the same bits
// for the same inputs, however they cut the vector.
#include "leashed/update/passes.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/update/kernels/arithmetic.h"
#include "leashed/update/kernels/clamp.h"
#include "leashed/update/kernels/racy.h"

namespace leashed {
namespace {

enum class Mode { cached, streamed, racy, racy_streamed };
constexpr bool races(Mode mode) { return mode == Mode::racy || mode == Mode::racy_streamed; }
constexpr bool streams(Mode mode) { return mode == Mode::streamed || mode == Mode::racy_streamed; }

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

// What depends on whether a vector of parameters is worked on or one.
template <class V>
struct Lanes;
template <>
struct Lanes<vfloat> {
  LEASHED_INLINE vfloat load(const float* p) { return vload(p); }
  LEASHED_INLINE vfloat load_racy(const float* p) { return load_once(p); }
  LEASHED_INLINE void store(float* p, vfloat v) { vstore(p, v); }
  LEASHED_INLINE void store_racy(float* p, vfloat v) { store_once(p, v); }
  LEASHED_INLINE void store_streamed(float* p, vfloat v) {
    stream(p, v);
    asm volatile("" : : : "memory");  // once and here, as store_once
  }
};
template <>
struct Lanes<float> {
  LEASHED_INLINE float load(const float* p) { return *p; }
  LEASHED_INLINE float load_racy(const float* p) { return load_one(p); }
  LEASHED_INLINE void store(float* p, float x) { *p = x; }
  LEASHED_INLINE void store_racy(float* p, float x) { store_one(p, x); }
  LEASHED_INLINE void store_streamed(float* p, float x) { store_one(p, x); }
};

template <class V, Mode mode>
LEASHED_INLINE V load(const float* p) {
  if constexpr (races(mode)) {
    return Lanes<V>::load_racy(p);
  } else {
    return Lanes<V>::load(p);
  }
}
template <class V, Mode mode>
LEASHED_INLINE void store(float* p, V v) {
  if constexpr (streams(mode)) {
    Lanes<V>::store_streamed(p, v);
  } else if constexpr (races(mode)) {
    Lanes<V>::store_racy(p, v);
  } else {
    Lanes<V>::store(p, v);
  }
}

// Parameters [i, i + lanes of V): returns θ's change.
template <class Rule, Mode mode, class V>
LEASHED_INLINE V update(float* next, const float* current, std::size_t stride,
                        const float* gradient, std::size_t i, const Coefficients& c) {
  V state[Rule::kStates + 1];
  for (std::size_t k = 0; k < Rule::kStates; ++k) {
    state[k] = load<V, mode>(current + (k + 1) * stride + i);
  }
  const V theta = load<V, mode>(current + i);
  const V clipped = clamp(Lanes<V>::load(gradient + i), broadcast<V>(c.clip));
  const V changed = Rule::step(c.shrink * theta, c.scale * clipped + c.coupled * theta, state, c);
  for (std::size_t k = 0; k < Rule::kStates; ++k) {
    store<V, mode>(next + (k + 1) * stride + i, state[k]);
  }
  store<V, mode>(next + i, changed);
  return changed - theta;
}

template <class Rule, Mode mode, bool measure>
LEASHED_INLINE double run(float* next, const float* current, std::size_t stride,
                          const float* gradient, std::size_t begin, std::size_t end,
                          const Coefficients& coefficients) {
  const Coefficients c = coefficients;  // a copy: nothing that is stored can change it
  double total = 0;
  const auto one = [&](std::size_t i) __attribute__((always_inline)) {
    const double change = update<Rule, mode, float>(next, current, stride, gradient, i, c);
    if constexpr (measure) total += change * change;
  };
  std::size_t i = begin;
  if constexpr (streams(mode)) {  // such stores need vectors that are aligned
    for (; i < end && i % kLanes != 0; ++i) one(i);
  }
  vdouble sums = {};
  for (; i + kLanes <= end; i += kLanes) {
    const vfloat change = update<Rule, mode, vfloat>(next, current, stride, gradient, i, c);
    if constexpr (measure) {
      const vdouble wide = __builtin_convertvector(change, vdouble);
      sums += wide * wide;
    }
  }
  for (; i < end; ++i) one(i);
#if defined(__x86_64__)
  // Streaming stores are not ordered by the release that publishes the vector; this orders them.
  if constexpr (streams(mode)) _mm_sfence();
#endif
  if constexpr (measure) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) total += sums[lane];
  }
  return total;
}

template <class Rule, Mode mode, bool measure>
double pass(float* next, const float* current, std::size_t stride, const float* gradient,
            std::size_t begin, std::size_t end, const Coefficients& c) {
  return run<Rule, mode, measure>(next, current, stride, gradient, begin, end, c);
}
template <class Rule, Mode mode, bool measure>
LEASHED_RACY double racy_pass(float* next, const float* current, std::size_t stride,
                              const float* gradient, std::size_t begin, std::size_t end,
                              const Coefficients& c) {
  return run<Rule, mode, measure>(next, current, stride, gradient, begin, end, c);
}

template <class Rule>
constexpr RulePasses passes() {
  return {pass<Rule, Mode::cached, false>,
          pass<Rule, Mode::streamed, false>,
          racy_pass<Rule, Mode::racy, false>,
          racy_pass<Rule, Mode::racy_streamed, false>,
          pass<Rule, Mode::cached, true>,
          pass<Rule, Mode::streamed, true>,
          racy_pass<Rule, Mode::racy, true>,
          racy_pass<Rule, Mode::racy_streamed, true>,
          Rule::kStates};
}

}  // namespace

extern const PassTable LEASHED_ISA_NAME(pass_table);
const PassTable LEASHED_ISA_NAME(pass_table) = {{
    // In the order of enum Arithmetic.
    passes<SgdArithmetic>(),
    passes<MomentumArithmetic>(),
    passes<NesterovArithmetic>(),
    passes<AdagradArithmetic>(),
    passes<RmspropArithmetic>(),
    passes<AdamArithmetic>(),
}};

}  // namespace leashed
