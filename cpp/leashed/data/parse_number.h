// Finite decimal numbers, and which numbers are labels. Most numbers are short: these take a few
// steps, and have the same value, since whole numbers up to 2^53 and powers of ten up to 10^22 are
// exact, and one division is rounded once.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace leashed {

// Whether a number that is beyond the range of doubles is so since it is small: by the place of its
// first digit that is not 0.
inline bool is_small(std::string_view text) {
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, e);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const auto place = static_cast<std::ptrdiff_t>(point) -
                     static_cast<std::ptrdiff_t>(digits.find_first_of("123456789"));
  std::string_view power = text.substr(std::min(e + 1, text.size()));
  if (power.starts_with('+')) power.remove_prefix(1);
  std::ptrdiff_t exponent = 0;
  const auto [_, error] = std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (error == std::errc::result_out_of_range) return power.starts_with('-');
  return exponent < -place;
}

// False where the whole text is no finite number. Of one too small for a double it is 0.
inline bool parse_number(std::string_view text, double& value) {
  constexpr double kTens[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const char* at = text.data();
  const char* const end = at + text.size();
  const bool negative = at != end && *at == '-';
  if (at != end && (*at == '-' || *at == '+')) ++at;
  const char* const digits = at;
  if (end - at <= 16) {
    std::uint64_t whole = 0;
    while (at != end && static_cast<unsigned char>(*at - '0') < 10)
      whole = whole * 10 + static_cast<std::uint64_t>(*at++ - '0');
    std::size_t decimals = 0;
    if (at != end && *at == '.' && at != digits) {
      const char* const point = at++;
      while (at != end && static_cast<unsigned char>(*at - '0') < 10)
        whole = whole * 10 + static_cast<std::uint64_t>(*at++ - '0');
      decimals = static_cast<std::size_t>(at - point - 1);
    }
    if (at == end && at != digits && whole < (std::uint64_t{1} << 53)) {
      value = static_cast<double>(whole);
      if (decimals > 0) value /= kTens[decimals];
      if (negative) value = -value;
      return true;
    }
  }
  // (from_chars takes no plus sign.)
  const char* const from = negative ? digits - 1 : digits;
  if (from == end || (!negative && *from == '-')) return false;
  const auto [stop, error] = std::from_chars(from, end, value);
  if (stop != end) return false;
  if (error == std::errc::result_out_of_range) {
    value = negative ? -0.0 : 0.0;
    return is_small(text);
  }
  return error == std::errc() && std::isfinite(value);
}

// Whether it is a label: whole, and from 0 below so many.
inline bool is_label(double x, std::int32_t classes) {
  return x >= 0 && x < classes && x == std::floor(x);
}

}  // namespace leashed
