// Places of separators in text, 64 bytes at a time.
#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/data/kernels.h"

namespace leashed {
namespace {

#if defined(__x86_64__)

// One bit for each of 64 bytes: whether it is either of the two.
LEASHED_INLINE std::uint64_t either(const char* p, char a, char b) {
#if defined(__AVX512BW__)
  const __m512i bytes = _mm512_loadu_si512(p);
  return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(a)) |
         _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(b));
#elif defined(__AVX2__)
  const __m256i as = _mm256_set1_epi8(a), bs = _mm256_set1_epi8(b);
  std::uint64_t bits = 0;
  for (int half = 0; half < 2; ++half) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * half));
    const __m256i is = _mm256_or_si256(_mm256_cmpeq_epi8(bytes, as), _mm256_cmpeq_epi8(bytes, bs));
    bits |= std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(is))} << (32 * half);
  }
  return bits;
#else
  const __m128i as = _mm_set1_epi8(a), bs = _mm_set1_epi8(b);
  std::uint64_t bits = 0;
  for (int part = 0; part < 4; ++part) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * part));
    const __m128i is = _mm_or_si128(_mm_cmpeq_epi8(bytes, as), _mm_cmpeq_epi8(bytes, bs));
    bits |= std::uint64_t{static_cast<std::uint32_t>(_mm_movemask_epi8(is))} << (16 * part);
  }
  return bits;
#endif
}

std::size_t separators(const char* text, std::size_t size, char separator, std::uint32_t* places) {
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < size; begin += 64) {
    std::uint64_t bits = either(text + begin, separator, '\n');
    if (size - begin < 64) bits &= (std::uint64_t{1} << (size - begin)) - 1;
    for (; bits != 0; bits &= bits - 1) {
      places[count++] =
          static_cast<std::uint32_t>(begin) + static_cast<std::uint32_t>(__builtin_ctzll(bits));
    }
  }
  return count;
}

#else

std::size_t separators(const char* text, std::size_t size, char separator, std::uint32_t* places) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < size; ++i) {
    places[count] = static_cast<std::uint32_t>(i);
    count += (text[i] == separator) | (text[i] == '\n');
  }
  return count;
}

#endif

}  // namespace

extern const ScanKernels LEASHED_ISA_NAME(scan_kernels);
const ScanKernels LEASHED_ISA_NAME(scan_kernels) = {separators};

}  // namespace leashed
