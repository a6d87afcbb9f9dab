#include "leashed/data/negatives.h"

#include <algorithm>
#include <cmath>

#include "leashed/base/philox.h"

namespace leashed {
namespace {

constexpr std::uint64_t kStream = 0x6e65676174697665;  // of Philox's, apart from others'

}  // namespace

void Negatives::draw(std::uint64_t seed, std::uint64_t place, std::uint64_t* ids) const {
  const double scale = std::log1p(static_cast<double>(below));
  for (std::size_t i = 0; i < count; ++i) {
    const auto words = philox(seed, kStream ^ place, i);
    const std::uint64_t bits = std::uint64_t{words[0]} << 32 | words[1];
    if (sampling == Sampling::uniform) {
      ids[i] = (words[0] * below + (words[1] * below >> 32)) >> 32;  // ⌊bits · below / 2^64⌋
      continue;
    }
    const double u = static_cast<double>(bits >> 11) * 0x1p-53;
    ids[i] = std::min(static_cast<std::uint64_t>(std::exp(u * scale) - 1), below - 1);
  }
}

double Negatives::log_expected(std::uint64_t id) const {
  const auto n = static_cast<double>(count), all = static_cast<double>(below);
  if (sampling == Sampling::uniform) return std::log(n / all);
  return std::log(n * std::log1p(1 / (static_cast<double>(id) + 1)) / std::log1p(all));
}

}  // namespace leashed
