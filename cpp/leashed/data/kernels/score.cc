// Sums over scored rows, in double precision, and the bins of their logits.
#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/data/kernels.h"

namespace leashed {
namespace {

// A vector of floats is two of doubles.
constexpr std::size_t kHalf = kLanes / 2;
typedef double vdouble __attribute__((vector_size(kHalf * sizeof(double))));
typedef double vdouble_u
    __attribute__((vector_size(kHalf * sizeof(double)), aligned(8), may_alias));
typedef std::uint64_t vwide __attribute__((vector_size(kHalf * sizeof(std::uint64_t))));
typedef std::uint32_t vbits __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));

constexpr std::int32_t kSign = -0x7fffffff - 1;
constexpr float kInfinity = __builtin_inff();

LEASHED_INLINE vdouble dset(double x) { return x - vdouble{}; }

template <class Part, class V>
LEASHED_INLINE Part part(const V& v, int half) {
  Part taken;
  std::memcpy(&taken, reinterpret_cast<const char*>(&v) + half * sizeof(taken), sizeof(taken));
  return taken;
}

// A mask has each lane's sign. With AVX-512 by hand, since GCC would take vectors apart and put
// them together again.
#if defined(__AVX512F__)
using Mask = __mmask8;
LEASHED_INLINE vdouble widened(const vfloat& v, int half) {
  return _mm512_maskz_cvtps_pd(0xff, part<__m256>(v, half));
}
LEASHED_INLINE Mask signs(const vint& v, int half) {
  return static_cast<Mask>(_mm512_movepi32_mask(reinterpret_cast<__m512i>(v)) >> 8 * half);
}
LEASHED_INLINE vdouble choose(Mask mask, vdouble a, vdouble b) {
  return _mm512_mask_blend_pd(mask, b, a);
}
#else
typedef float vhalf __attribute__((vector_size(kHalf * sizeof(float))));
typedef std::int32_t vhalfint __attribute__((vector_size(kHalf * sizeof(std::int32_t))));
typedef std::int64_t Mask __attribute__((vector_size(kHalf * sizeof(std::int64_t))));
LEASHED_INLINE vdouble widened(const vfloat& v, int half) {
  return __builtin_convertvector(part<vhalf>(v, half), vdouble);
}
LEASHED_INLINE Mask signs(const vint& v, int half) {
  return __builtin_convertvector(part<vhalfint>(v >> 31, half), Mask);
}
LEASHED_INLINE vdouble choose(Mask mask, vdouble a, vdouble b) { return mask ? a : b; }
#endif

// By Horner's rule, the coefficient of the highest power first.
template <class... Coefficients>
LEASHED_INLINE vdouble polynomial(vdouble x, double first, Coefficients... others) {
  vdouble p = dset(first);
  ((p = p * x + others), ...);
  return p;
}

// e^x for x <= 0: 2^n e^r with |r| <= ln(2)/2 and e^r from its minimax polynomial, relative error
// under 5e-11. 0 where the result would be denormal (x < -708); NaN for NaN.
LEASHED_INLINE vdouble exp_negative(vdouble x) {
  const vdouble shift = dset(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to a whole number
  const vdouble shifted = x * 1.4426950408889634 + shift;
  const vdouble r = x - (shifted - shift) * 0.69314718055994531;
  const vdouble p = polynomial(r, 0.00019775160531026297, 0.0013948195139022652,
                               0.0083335611766106099, 0.041666225250020369, 0.16666665125242093,
                               0.50000001045984631, 1.0000000002432869, 0.99999999996165149);
  // The shift falls out on top.
  const vwide power = reinterpret_cast<vwide>(p) + (reinterpret_cast<vwide>(shifted) << 52);
  return x < dset(-708.0) ? vdouble{} : reinterpret_cast<vdouble>(power);
}

// log(1 + e) for e in [0, 1]: 2 atanh(s) with s = e / (2 + e), relative error under 1e-10.
LEASHED_INLINE vdouble log_of_one_and(vdouble e) {
  const vdouble s = e / (2.0 + e), square = s * s;
  return s * polynomial(square, 0.24413067815745709, 0.21393250697162652, 0.28620722106320493,
                        0.39998690902876916, 0.66666679307440023, 1.9999999998028126);
}

// A vector's sums: of its lower and of its upper half.
struct Lanes {
  vdouble low, high;

  LEASHED_INLINE Lanes from(const double* p) {
    return {*reinterpret_cast<const vdouble_u*>(p), *reinterpret_cast<const vdouble_u*>(p + kHalf)};
  }
  LEASHED_INLINE void store(const Lanes& lanes, double* p) {
    *reinterpret_cast<vdouble_u*>(p) = lanes.low;
    *reinterpret_cast<vdouble_u*>(p + kHalf) = lanes.high;
  }
};

struct Rows {
  vfloat logits, weights;
  vint clicks, wrong;  // in the signs: whether it is a click; whether the logit has the other sign
};

// Of rows that weigh 1, e.
LEASHED_INLINE void add(const Rows& rows, int half, vdouble& product, vdouble& scaled,
                        vdouble& loss) {
  const vdouble negative =
      widened(reinterpret_cast<vfloat>(reinterpret_cast<vint>(rows.logits) | kSign), half);
  const vdouble e = exp_negative(negative), before = 1.0 + product;
  loss = choose(signs(rows.wrong, half), loss - negative, loss);
  const vdouble share = choose(signs(reinterpret_cast<vint>(rows.logits), half), e, dset(1));
  scaled = scaled * (1.0 + e) + share * before;
  product += e * before;
}

LEASHED_INLINE void add_weighted(const Rows& rows, int half, vdouble& clicks, vdouble& others,
                                 vdouble& expected, vdouble& loss) {
  const vdouble negative =
      widened(reinterpret_cast<vfloat>(reinterpret_cast<vint>(rows.logits) | kSign), half);
  const vdouble e = exp_negative(negative), weight = widened(rows.weights, half);
  const vdouble linear = choose(signs(rows.wrong, half), -negative, vdouble{});
  loss += weight * (linear + log_of_one_and(e));
  const vdouble share = choose(signs(reinterpret_cast<vint>(rows.logits), half), e, dset(1));
  expected += weight * share / (1.0 + e);
  const Mask click = signs(rows.clicks, half);
  clicks += choose(click, weight, vdouble{});
  others += choose(click, vdouble{}, weight);
}

// Bin: what a row adds to its one is 1, or a weight.
template <class Bin>
LEASHED_INLINE void score(const float* logits, const std::int32_t* labels, const float* weights,
                          std::size_t size, Bin* bins, ScoreSums& sums) {
  constexpr bool weighted = Bin(0.5) != 0;
  Lanes loss = Lanes::from(sums.loss);
  Lanes first = Lanes::from(weighted ? sums.clicks : sums.product);
  Lanes second = Lanes::from(weighted ? sums.others : sums.scaled);
  Lanes expected = Lanes::from(sums.expected);
  vint counted = {};
  vbits blocks = {};
  for (std::size_t i = 0; i < size; i += kLanes) {
    const std::size_t count = min(kLanes, size - i);
    Rows rows;
    vint labelled;
    if (count == kLanes) {
      rows.logits = vload(logits + i);
      std::memcpy(&labelled, labels + i, sizeof(labelled));
      if constexpr (weighted) rows.weights = vload(weights + i);
    } else {
      // Beside rows that are sure of the label 0, which adds 0 to all sums; and weigh 0.
      rows.logits = vset(-kInfinity);
      labelled = vint{};
      std::memcpy(&rows.logits, logits + i, count * sizeof(float));
      std::memcpy(&labelled, labels + i, count * sizeof(std::int32_t));
      if constexpr (weighted) {
        rows.weights = vfloat{};
        std::memcpy(&rows.weights, weights + i, count * sizeof(float));
      }
    }
    rows.clicks = labelled == 1;
    counted -= rows.clicks;

    const vint bits = reinterpret_cast<vint>(rows.logits + 0.0f);  // −0 is 0
    // Larger for larger floats: negative ones have all bits turned, the others the sign.
    const vbits turned = reinterpret_cast<vbits>(bits ^ ((bits >> 31) | kSign));
    const vbits place = ((turned >> 16) << 1) | reinterpret_cast<vbits>(rows.clicks & 1);
    blocks |= (vbits{} + 1u) << (turned >> 27);
    alignas(sizeof(place)) std::uint32_t places[kLanes];
    std::memcpy(places, &place, sizeof(places));
    asm("" : "+m"(places));  // read from there, which takes less time than out of the register

    if constexpr (weighted) {
      // Even where the loss is infinite.
      rows.logits = rows.weights == vfloat{} ? vfloat{} : rows.logits;
    }
    rows.wrong = reinterpret_cast<vint>(rows.logits) ^ (~rows.clicks & kSign);
    if constexpr (weighted) {
      add_weighted(rows, 0, first.low, second.low, expected.low, loss.low);
      add_weighted(rows, 1, first.high, second.high, expected.high, loss.high);
    } else {
      add(rows, 0, first.low, second.low, loss.low);
      add(rows, 1, first.high, second.high, loss.high);
    }

    const auto add_row = [&](std::size_t j) __attribute__((always_inline)) {
      if constexpr (weighted) {
        bins[places[j]] += double{weights[i + j]};
      } else {
        ++bins[places[j]];
      }
    };
    if (count == kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) add_row(j);
    } else {
#pragma GCC unroll 1
      for (std::size_t j = 0; j < count; ++j) add_row(j);
    }
  }
  Lanes::store(loss, sums.loss);
  Lanes::store(first, weighted ? sums.clicks : sums.product);
  Lanes::store(second, weighted ? sums.others : sums.scaled);
  if constexpr (weighted) {
    Lanes::store(expected, sums.expected);
  } else {
    std::int32_t clicks = 0;
    for (std::size_t j = 0; j < kLanes; ++j) clicks += counted[j];
    sums.clicks[0] += clicks;
    sums.others[0] += static_cast<double>(size) - clicks;
  }
  for (std::size_t j = 0; j < kLanes; ++j) sums.blocks |= blocks[j];
}

void count(const float* logits, const std::int32_t* labels, std::size_t size, std::uint64_t* bins,
           ScoreSums& sums) {
  score(logits, labels, nullptr, size, bins, sums);
}
void weigh(const float* logits, const std::int32_t* labels, const float* weights, std::size_t size,
           double* bins, ScoreSums& sums) {
  score(logits, labels, weights, size, bins, sums);
}

}  // namespace

extern const ScoreKernels LEASHED_ISA_NAME(score_kernels);
const ScoreKernels LEASHED_ISA_NAME(score_kernels) = {kLanes, count, weigh};

}  // namespace leashed
