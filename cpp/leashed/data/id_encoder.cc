#include "leashed/data/id_encoder.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

namespace leashed {
namespace {

constexpr std::uint64_t all(std::uint64_t byte) { return byte * 0x0101010101010101; }

// Eight hexadecimal digits at once. A byte x below 128 is at most b where x + (127 − b) is below
// 128 too.
std::optional<std::uint64_t> eight_digits(const char* text) {
  std::uint64_t bytes;
  std::memcpy(&bytes, text, sizeof bytes);
  if constexpr (std::endian::native == std::endian::big) bytes = __builtin_bswap64(bytes);
  const std::uint64_t top = all(0x80);
  const std::uint64_t digits = bytes ^ all('0');                  // 0 to 9
  const std::uint64_t letters = (bytes | all(0x20)) ^ all(0x60);  // 1 to 6
  const std::uint64_t are_digits = ~(digits + all(127 - 9));
  const std::uint64_t are_letters = (letters + all(127)) & ~(letters + all(127 - 6));
  if ((bytes & top) != 0 || ((are_digits | are_letters) & top) != top) return std::nullopt;
  std::uint64_t n = (bytes & all(0x0f)) + 9 * ((bytes >> 6) & all(0x01));
  n = (n << 4 | n >> 8) & 0x00ff00ff00ff00ff;
  n = (n << 8 | n >> 16) & 0x0000ffff0000ffff;
  return (n << 16 | n >> 32) & 0xffffffff;
}

std::optional<std::uint64_t> whole(std::string_view text, int base) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, base);
  if (at != end || error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::uint64_t hash_of(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

Vocabulary::Vocabulary(std::vector<std::string> words) : words_(std::move(words)) {
  for (std::uint64_t i = 0; i < words_.size(); ++i) places_.emplace(words_[i], i);
}

std::uint64_t Vocabulary::find(std::string_view word) const {
  const auto found = places_.find(word);
  return found == places_.end() ? words_.size() : found->second;
}

std::optional<std::uint64_t> IdEncoder::operator()(std::string_view text) const {
  switch (kind) {
    case Kind::hash: {
      const std::uint64_t hash = hash_of(text, seed);
      return buckets > 0 ? hash % buckets : hash;
    }
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
  } else if (digits == 8 || (digits == 0 && text.size() == 8)) {
    if (text.size() == 8) value = eight_digits(text.data());
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
