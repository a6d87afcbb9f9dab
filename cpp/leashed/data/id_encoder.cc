#include "leashed/data/id_encoder.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "leashed/data/eight_digits.h"
#include "leashed/data/parse_number.h"

namespace leashed {
namespace {

std::optional<std::uint64_t> whole(std::string_view text, int base) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, base);
  if (at != end || error != std::errc()) return std::nullopt;
  return value;
}

// A whole number in another spelling, "7.0" or "07": so libraries write some that are ids.
std::optional<std::int64_t> respelled(std::string_view text) {
  double x = 0;
  if (!parse_number(text, x) || x != std::trunc(x) || std::abs(x) >= 0x1p53) return std::nullopt;
  return static_cast<std::int64_t>(x);
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> words) : words_(std::move(words)) {
  for (std::uint64_t i = 0; i < words_.size(); ++i) places_.emplace(words_[i], i);
}

std::uint64_t Vocabulary::find(std::string_view word) const {
  auto found = places_.find(word);
  const auto number = found == places_.end() ? respelled(word) : std::nullopt;
  if (number) found = places_.find(std::to_string(*number));
  if (number && (*number == 0 || *number == 1)) {  // also a truth value
    for (const auto& [no, yes] : {std::pair{"False", "True"}, {"false", "true"}}) {
      if (found == places_.end()) found = places_.find(*number ? yes : no);
    }
  }
  return found == places_.end() ? words_.size() : found->second;
}

std::optional<std::uint64_t> IdEncoder::operator()(std::string_view text) const {
  switch (kind) {
    case Kind::hash:
      return hash(text);
    case Kind::vocabulary:
      return vocabulary->find(text);
    default:
      break;
  }
  if (text.empty()) return missing;
  std::optional<std::uint64_t> value;
  if (kind == Kind::decimal) {
    if (text.front() == '-') {  // by its bits, as everywhere
      std::int64_t negative = 0;
      const char* const end = text.data() + text.size();
      const auto [at, error] = std::from_chars(text.data(), end, negative);
      if (at == end && error == std::errc()) value = static_cast<std::uint64_t>(negative);
    } else {
      value = whole(text, 10);
    }
    if (!value) value = respelled(text);
  } else if (digits == 8 || (digits == 0 && text.size() == 8)) {
    std::uint64_t number = 0;
    if (text.size() == 8 && hexadecimal_digits(text.data(), number)) value = number;
  } else if (digits == 0 || text.size() == digits) {
    value = whole(text, 16);
  }
  if (value) *value += offset;
  return value;
}

std::string IdEncoder::expected() const {
  if (kind == Kind::decimal) return "a whole number of 64 bits";
  return digits > 0 ? std::to_string(digits) + " hexadecimal digits" : "1 to 16 hexadecimal digits";
}

}  // namespace leashed
