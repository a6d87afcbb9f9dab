// What goes over a connection: frames, a header of 40 bytes each and a payload behind it.
//
//   0 magic "LSHD"   4 version   6 kind   8 flags   12 zero   16 length of the payload
//   24 correlation   32 CRC-32C of the payload, 0 without one   36 CRC-32C of the 36 bytes before
//
// Numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace leashed {

inline constexpr std::size_t kFrameHeader = 40;

struct FrameHeader {
  std::uint16_t kind = 0;
  std::uint64_t length = 0;       // of the payload, in bytes
  std::uint64_t correlation = 0;  // the same in a request and its reply
  bool checked = false;           // the payload has a checksum
  std::uint32_t checksum = 0;     // that one
};

std::array<std::byte, kFrameHeader> encode(const FrameHeader& header);

// Makes frames of bytes as they come, in whatever pieces. Allocates nothing, and believes nothing:
// a length is held against its kind's limit before anybody is asked for memory.
class FrameParser {
 public:
  enum class Step {
    more,     // all bytes are used up
    header,   // of a frame: until place() has said where its payload goes, nothing else is told
    frame,    // its payload is complete
    refused,  // why() says why; what follows cannot be understood, and neither can this
  };

  // limits[kind]: the most bytes of payload; other kinds are refused. Must outlive the parser.
  explicit FrameParser(std::span<const std::uint64_t> limits) : limits_(limits) {}

  // Takes bytes from the front until there is something to tell.
  Step feed(std::span<const std::byte>& bytes);
  const FrameHeader& header() const { return header_; }
  // As many bytes as the header says, else throws Error. They are written to until the frame is
  // complete.
  void place(std::span<std::byte> payload);
  // Instead: its bytes are counted and checked, and not kept.
  void pass();
  // Whether a frame has begun to come in.
  bool within() const { return in_payload_ || have_ > 0; }
  // What is missing of the payload, for who can write it there himself; empty outside of one.
  std::span<std::byte> missing() const;
  // He has written so much of it.
  Step wrote(std::size_t bytes) { return passed(missing().first(bytes)); }
  // The next bytes of a payload, wherever they lie; no more than left().
  Step passed(std::span<const std::byte> bytes);
  bool passing() const { return in_payload_ && passing_; }
  // How many bytes of the payload have not come.
  std::uint64_t left() const { return in_payload_ ? header_.length - have_ : 0; }
  const std::string& why() const { return why_; }

 private:
  Step read_header();
  Step refuse(std::string why);

  const std::span<const std::uint64_t> limits_;
  std::array<std::byte, kFrameHeader> bytes_{};
  std::size_t have_ = 0;  // of the header, or of the payload
  bool in_payload_ = false, placed_ = false, passing_ = false;
  FrameHeader header_;
  std::span<std::byte> payload_;
  std::uint32_t checksum_ = 0;  // of the payload so far
  std::string why_;
};

}  // namespace leashed
