// What two processes must have alike, in a number that both say.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace leashed {

// FNV-1a, of words: of whose highest bits, which are all that many numbers have, a product has
// nothing further down.
class WordsDigest {
 public:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001B3;
    value_ ^= value_ >> 32;
  }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(std::string_view text) {
    add(std::uint64_t{text.size()});
    for (const char letter : text) add(std::uint64_t{static_cast<unsigned char>(letter)});
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325;
};

}  // namespace leashed
