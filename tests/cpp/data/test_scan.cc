#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/data/id_encoder.h"
#include "leashed/data/kernels.h"

using namespace leashed;

TEST_CASE("Separators are found where a plain loop finds them, on every instruction set") {
  for (std::size_t size : {0, 1, 2, 15, 16, 31, 63, 64, 65, 127, 128, 1000}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      std::string text(size + 64, '\t');
      for (std::size_t i = 0; i < size; ++i) text[i] = "a\tb\n,\x89"[philox(seed, 0, i)[0] % 6];
      std::vector<std::uint32_t> expected;
      for (std::size_t i = 0; i < size; ++i) {
        if (text[i] == '\t' || text[i] == '\n') expected.push_back(static_cast<std::uint32_t>(i));
      }
      for (const Isa isa : available_isas()) {
        std::vector<std::uint32_t> places(size + 64);
        places.resize(scan_kernels(isa).separators(text.data(), size, '\t', places.data()));
        CHECK(places == expected);
      }
    }
  }
}

TEST_CASE("Eight hexadecimal digits are what they are one by one, and no other byte is a digit") {
  const IdEncoder encoder{IdEncoder::Kind::hexadecimal, 8};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint32_t value = philox(1, 0, i)[0];
    const char* const digits = i % 2 ? "0123456789abcdef" : "0123456789ABCDEF";
    std::string text;
    for (int shift = 28; shift >= 0; shift -= 4) text += digits[value >> shift & 15];
    CHECK(encoder(text) == value);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto c = static_cast<char>(byte);
    const bool digit = std::string("0123456789abcdefABCDEF").find(c) != std::string::npos;
    for (std::size_t at = 0; at < 8; ++at) {
      std::string text = "0123abcd";
      text[at] = c;
      CHECK(encoder(text).has_value() == digit);
    }
  }
  CHECK_FALSE(encoder("1234567"));
  CHECK_FALSE(encoder("123456789"));
  CHECK_FALSE(encoder(""));
}
