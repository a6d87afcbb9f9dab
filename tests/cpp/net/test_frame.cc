// The parser, on frames that are right and on bytes that are not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "asked.h"
#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"
#include "leashed/net/frame.h"

using namespace leashed;

namespace {

using Bytes = std::vector<std::byte>;
using Step = FrameParser::Step;

constexpr std::uint64_t kLimits[] = {0, 100, 1000};

Bytes frame(std::uint16_t kind, std::uint64_t correlation, const Bytes& payload, bool checked) {
  FrameHeader header{kind, payload.size(), correlation, checked, 0};
  if (checked) header.checksum = crc32c(payload.data(), payload.size());
  const auto head = encode(header);
  Bytes bytes(kFrameHeader + payload.size());
  std::copy(head.begin(), head.end(), bytes.begin());
  std::copy(payload.begin(), payload.end(), bytes.begin() + kFrameHeader);
  return bytes;
}

Bytes payload_of(std::size_t size, std::mt19937_64& random) {
  Bytes payload(size);
  for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
  return payload;
}

// Reads all of it, in pieces of at most `piece` bytes; the frames' headers and payloads. Memory is
// only given for as much as the limits allow.
struct Read {
  std::vector<FrameHeader> headers;
  std::vector<Bytes> payloads;
  std::string why;
  bool within;
};
Read read(const Bytes& bytes, std::size_t piece) {
  FrameParser parser(kLimits);
  Read result;
  Bytes payload;
  const auto told = [&](Step step) {
    if (step == Step::header) {
      REQUIRE(parser.header().length <= 1000);
      payload.assign(parser.header().length, std::byte{});
      parser.place(payload);
    } else if (step == Step::frame) {
      result.headers.push_back(parser.header());
      result.payloads.push_back(payload);
    }
    return step != Step::refused;
  };
  for (std::size_t at = 0; at < bytes.size() && result.why.empty();) {
    std::span<const std::byte> next(bytes.data() + at, std::min(piece, bytes.size() - at));
    at += next.size();
    for (Step step = Step::header; step != Step::more;) {
      step = parser.feed(next);
      if (!told(step)) {
        result.why = parser.why();
        REQUIRE(parser.feed(next) == Step::refused);
        break;
      }
    }
  }
  result.within = parser.within();
  return result;
}

}  // namespace

TEST_CASE("CRC-32C is the published one, with the instruction and without") {
  CHECK(crc32c("123456789", 9) == 0xe3069283);
  CHECK(crc32c(nullptr, 0) == 0);
  const Bytes zeros(32), ones(32, std::byte{0xff});
  CHECK(crc32c(zeros.data(), 32) == 0x8a9136aa);  // RFC 3720, B.4
  CHECK(crc32c(ones.data(), 32) == 0x62a8ab43);
  std::mt19937_64 random(1);
  for (std::size_t size = 0; size < 70; ++size) {
    const Bytes bytes = payload_of(size, random);
    CHECK(crc32c(bytes.data(), size) == crc32c_plain(bytes.data(), size));
    const std::size_t half = size / 2;
    CHECK(crc32c(bytes.data() + half, size - half, crc32c(bytes.data(), half)) ==
          crc32c(bytes.data(), size));
  }
}

TEST_CASE("a payload is placed once, in as much memory as it needs, before anything else is told") {
  const Bytes bytes = frame(1, 5, Bytes(3), false);
  FrameParser parser(kLimits);
  std::span<const std::byte> rest(bytes);
  Bytes memory(3);
  CHECK_THROWS_AS(parser.place(memory), Error);
  CHECK(parser.feed(rest) == Step::header);
  CHECK(parser.feed(rest) == Step::header);
  CHECK(rest.size() == 3);
  CHECK(parser.missing().empty());
  CHECK_THROWS_AS(parser.place(std::span(memory).first(2)), Error);
  parser.place(memory);
  CHECK_THROWS_AS(parser.place(memory), Error);
  CHECK(parser.feed(rest) == Step::frame);
}

TEST_CASE("a payload that is not kept is counted and checked all the same") {
  for (const bool damaged : {false, true}) {
    Bytes bytes = frame(1, 5, Bytes(70, std::byte{3}), true);
    if (damaged) bytes.back() ^= std::byte{1};
    FrameParser parser(kLimits);
    CHECK_THROWS_AS(parser.pass(), Error);
    std::span<const std::byte> rest(bytes);
    CHECK(parser.feed(rest) == Step::header);
    CHECK(parser.left() == 70);
    parser.pass();
    CHECK(parser.passing());
    CHECK(parser.missing().empty());
    CHECK_THROWS_AS(parser.pass(), Error);
    CHECK(parser.passed(rest.first(64)) == Step::more);
    CHECK(parser.left() == 6);
    rest = rest.subspan(64);
    CHECK(parser.feed(rest) == (damaged ? Step::refused : Step::frame));
    CHECK(rest.empty());
  }
}

TEST_CASE("frames come out as they went in, in whatever pieces") {
  std::mt19937_64 random(2);
  Bytes bytes;
  std::vector<Bytes> payloads;
  for (int i = 0; i < 50; ++i) {
    const auto kind = static_cast<std::uint16_t>(random() % 3);
    const std::uint64_t most = kLimits[kind];
    payloads.push_back(payload_of(i % 4 == 0 ? most : random() % (most + 1), random));
    const Bytes next = frame(kind, random(), payloads.back(), random() % 2 == 0);
    bytes.insert(bytes.end(), next.begin(), next.end());
  }
  for (const std::size_t piece : {1u, 7u, 39u, 40u, 41u, 1000u, 1u << 20}) {
    const Read result = read(bytes, piece);
    CHECK(result.why.empty());
    CHECK_FALSE(result.within);
    CHECK(result.payloads == payloads);
  }
}

TEST_CASE("what is no frame, or none that is allowed, is refused before memory is asked for") {
  std::mt19937_64 random(3);
  const Bytes good = frame(1, 5, payload_of(60, random), true);
  const auto why = [](Bytes bytes) { return read(bytes, 13).why; };
  const auto again = [](Bytes bytes) {  // with a right checksum of the header
    const std::uint32_t checksum = crc32c(bytes.data(), 36);
    std::memcpy(bytes.data() + 36, &checksum, 4);
    return bytes;
  };
  Bytes bytes = good;
  bytes[0] = std::byte{'X'};
  CHECK(why(bytes) == "this is no frame of leashed");
  for (std::size_t i = 4; i < 40; ++i) {
    bytes = good;
    bytes[i] ^= std::byte{0x10};
    CHECK(why(bytes) == "a frame's header is damaged");
  }
  bytes = good;
  bytes[4] = std::byte{9};
  CHECK(why(again(bytes)).find("version 9") != std::string::npos);
  bytes = good;
  bytes[6] = std::byte{3};
  CHECK(why(again(bytes)) == "frames of kind 3 are unknown here");
  bytes = good;
  bytes[9] = std::byte{1};
  CHECK(why(again(bytes)).find("does not know") != std::string::npos);
  bytes = good;
  bytes[23] = std::byte{0x80};  // a length of 2⁶³
  CHECK(why(again(bytes)).find("at most 100 are allowed") != std::string::npos);
  bytes = good;
  bytes[12] = std::byte{1};
  CHECK(why(again(bytes)).find("does not know") != std::string::npos);
  bytes = frame(1, 5, payload_of(60, random), false);
  bytes[32] = std::byte{1};
  CHECK(why(again(bytes)).find("does not know") != std::string::npos);
  bytes = frame(0, 5, payload_of(1, random), false);
  CHECK(why(bytes).find("at most 0 are allowed") != std::string::npos);
  bytes = good;
  bytes[70] ^= std::byte{1};
  CHECK(why(bytes) == "a frame's payload is damaged");
  CHECK(read(Bytes(good.begin(), good.begin() + 50), 50).within);
}

// LEASHED_FUZZ: how many; ten million by hand.
TEST_CASE("mutated frames are refused or are what they were") {
  const auto count = static_cast<long>(asked_for("LEASHED_FUZZ", 200'000));
  std::mt19937_64 random(4);
  long refused = 0;
  for (long i = 0; i < count; ++i) {
    const auto kind = static_cast<std::uint16_t>(random() % 3);
    const Bytes payload = payload_of(random() % (kLimits[kind] + 1) % 120, random);
    Bytes bytes = frame(kind, i, payload, true);
    for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      switch (random() % 4) {
        case 0:
          if (!bytes.empty()) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
          break;
        case 1:
          bytes.insert(bytes.begin() + static_cast<long>(random() % (bytes.size() + 1)),
                       static_cast<std::byte>(random()));
          break;
        case 2:
          if (!bytes.empty())
            bytes.erase(bytes.begin() + static_cast<long>(random() % bytes.size()));
          break;
        default:
          bytes.resize(random() % (bytes.size() + 1));
      }
    }
    if (bytes.size() >= kFrameHeader && random() % 2 == 0) {  // past the header's own checksum
      const std::uint32_t checksum = crc32c(bytes.data(), 36);
      std::memcpy(bytes.data() + 36, &checksum, 4);
    }
    const Read result = read(bytes, 1 + random() % 64);
    refused += !result.why.empty();
    for (std::size_t k = 0; k < result.payloads.size(); ++k) {
      REQUIRE((result.payloads[k] == payload || !result.headers[k].checked));
    }
  }
  CHECK(refused > count / 4);
}
