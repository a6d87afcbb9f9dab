#include "leashed/net/frame.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"

namespace leashed {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kMagic = 0x4448534c;  // "LSHD"
constexpr std::uint16_t kVersion = 1;
constexpr std::uint32_t kChecked = 1;

// The header as it lies in memory.
struct Wire {
  std::uint32_t magic;
  std::uint16_t version, kind;
  std::uint32_t flags, zero;
  std::uint64_t length, correlation;
  std::uint32_t checksum, header_checksum;
};
static_assert(sizeof(Wire) == kFrameHeader);
constexpr std::size_t kBeforeChecksum = kFrameHeader - sizeof(std::uint32_t);

}  // namespace

std::array<std::byte, kFrameHeader> encode(const FrameHeader& header) {
  const Wire wire{kMagic, kVersion,      header.kind,        header.checked ? kChecked : 0,
                  0,      header.length, header.correlation, header.checksum,
                  0};
  std::array<std::byte, kFrameHeader> bytes;
  std::memcpy(bytes.data(), &wire, kFrameHeader);
  const std::uint32_t checksum = crc32c(bytes.data(), kBeforeChecksum);
  std::memcpy(bytes.data() + kBeforeChecksum, &checksum, sizeof checksum);
  return bytes;
}

FrameParser::Step FrameParser::refuse(std::string why) {
  why_ = std::move(why);
  return Step::refused;
}

FrameParser::Step FrameParser::feed(std::span<const std::byte>& bytes) {
  if (!why_.empty()) return Step::refused;
  if (in_payload_) {
    if (!placed_) return Step::header;
    const auto part = bytes.first(std::min<std::uint64_t>(left(), bytes.size()));
    if (!passing_ && !part.empty()) std::memcpy(missing().data(), part.data(), part.size());
    bytes = bytes.subspan(part.size());
    return passed(part);
  }
  const std::size_t n = std::min(kFrameHeader - have_, bytes.size());
  if (n > 0) std::memcpy(bytes_.data() + have_, bytes.data(), n);
  bytes = bytes.subspan(n);
  have_ += n;
  return have_ < kFrameHeader ? Step::more : read_header();
}

FrameParser::Step FrameParser::read_header() {
  Wire wire;
  std::memcpy(&wire, bytes_.data(), kFrameHeader);
  if (wire.magic != kMagic) return refuse("this is no frame of leashed");
  if (wire.header_checksum != crc32c(bytes_.data(), kBeforeChecksum)) {
    return refuse("a frame's header is damaged");
  }
  if (wire.version != kVersion) {
    return refuse("frames of version " + std::to_string(wire.version) +
                  " are not understood, only " + std::to_string(kVersion) +
                  "; run the same release of leashed everywhere");
  }
  const bool checked = (wire.flags & kChecked) != 0;
  if ((wire.flags & ~kChecked) != 0 || wire.zero != 0 || (!checked && wire.checksum != 0)) {
    return refuse("a frame's header has what version 1 does not know");
  }
  if (wire.kind >= limits_.size()) {
    return refuse("frames of kind " + std::to_string(wire.kind) + " are unknown here");
  }
  if (wire.length > limits_[wire.kind]) {
    return refuse("a frame of kind " + std::to_string(wire.kind) + " has " +
                  std::to_string(wire.length) + " bytes; at most " +
                  std::to_string(limits_[wire.kind]) + " are allowed");
  }
  header_ = {wire.kind, wire.length, wire.correlation, checked, wire.checksum};
  have_ = 0;
  checksum_ = 0;
  in_payload_ = true;
  placed_ = passing_ = false;
  return Step::header;
}

void FrameParser::place(std::span<std::byte> payload) {
  if (!in_payload_ || placed_ || payload.size() != header_.length) {
    throw Error("a payload of " + std::to_string(header_.length) +
                " bytes is to be placed once, not " + std::to_string(payload.size()) +
                " bytes of memory");
  }
  payload_ = payload;
  placed_ = true;
}

void FrameParser::pass() {
  if (!in_payload_ || placed_) throw Error("there is no payload to pass");
  placed_ = passing_ = true;
}

std::span<std::byte> FrameParser::missing() const {
  return in_payload_ && placed_ && !passing_ ? payload_.subspan(have_) : std::span<std::byte>{};
}

FrameParser::Step FrameParser::passed(std::span<const std::byte> bytes) {
  assert(in_payload_ && placed_ && bytes.size() <= left());
  if (header_.checked) checksum_ = crc32c(bytes.data(), bytes.size(), checksum_);
  have_ += bytes.size();
  if (have_ < header_.length) return Step::more;
  in_payload_ = false;
  have_ = 0;
  if (header_.checked && checksum_ != header_.checksum)
    return refuse("a frame's payload is damaged");
  return Step::frame;
}

}  // namespace leashed
