#include "leashed/table/initial.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "leashed/base/philox.h"

namespace leashed {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Four numbers from −1 on, below 1.
std::array<float, 4> uniform(const Words& words) {
  std::array<float, 4> numbers;
  for (std::size_t i = 0; i < 4; ++i) {
    numbers[i] = static_cast<float>(words[i] >> 8) * 0x1p-23f - 1;
  }
  return numbers;
}

// Four numbers of the standard normal distribution (Box and Muller).
std::array<float, 4> normal(const Words& words) {
  std::array<float, 4> numbers;
  for (std::size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log((words[i] + 0.5) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * (words[i + 1] * 0x1p-32);
    numbers[i] = static_cast<float>(radius * std::cos(angle));
    numbers[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return numbers;
}

}  // namespace

Initial::Initial(const Choice& choice, std::uint64_t seed, std::uint32_t table)
    : seed_(seed), table_(table) {
  struct Entry {
    Kind kind;
    const char* size;
  };
  static const std::map<std::string, Entry> kEntries = {{"zeros", {Kind::constant, nullptr}},
                                                        {"constant", {Kind::constant, "value"}},
                                                        {"uniform", {Kind::uniform, "bound"}},
                                                        {"normal", {Kind::normal, "sigma"}}};
  const auto& [kind, size] = find_choice(kEntries, "initialiser", choice.name);
  kind_ = kind;
  size_ = size ? static_cast<float>(choice[size]) : 0;
}

void Initial::operator()(std::uint64_t id, float* theta, std::size_t dim) const {
  if (kind_ == Kind::constant) {
    std::fill_n(theta, dim, size_);
    return;
  }
  for (std::size_t i = 0; i < dim; i += 4) {
    const Words words = philox(seed_, id, table_ << 32 | i / 4);
    const auto numbers = kind_ == Kind::uniform ? uniform(words) : normal(words);
    for (std::size_t j = i; j < std::min(i + 4, dim); ++j) theta[j] = size_ * numbers[j - i];
  }
}

}  // namespace leashed
