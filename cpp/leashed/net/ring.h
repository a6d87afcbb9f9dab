// All-reduce and broadcast over a ring of members, each connected with the one before it and the
// one behind it (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "leashed/net/codec.h"
#include "leashed/net/connection.h"
#include "leashed/net/ring_stream.h"

namespace leashed {

// A member's place. Both connections may be one, where there are two members.
struct RingPlace {
  Connection& previous;
  Connection& next;
  std::size_t rank;     // from 0
  std::size_t members;  // at least 2
};

// How a sum's values go over the wire.
struct RingCodec {
  Codec codec = Codec::none;
  // Else, of each value: what this member's sums have lacked in earlier rounds because of encoding,
  // and what they lack now. 0 in the first.
  std::span<float> error = {};
};

// One member's share of a round, as far as it can be done without waiting each time.
//
// Round tells one round from another; all members give the same, and equal kinds and lengths.
//
// Where step() throws (ConnectionError; a frame that is not of this round: Error), data is worth
// nothing, and neither are the connections: the member closes them, which breaks the round for its
// neighbours, and so for all who have not finished it. Who has finished has the whole result, and
// nobody ever takes another for it. But a member may have finished and another not: what was on the
// way to that one is lost with who dies. So whether a round counts is agreed on by other means.
class RingRound {
 public:
  // data ← the members' sum, the same bits for all: part p of so many as there are members is
  // summed from member p on, in the order of the ring. Fragments are added as they arrive, and sent
  // on at once.
  // With a codec, the same for all, what a member sends of partial sums is encoded, with what was
  // missing before; a part's whole sum once, by who has it first, and it and all others take what
  // comes out of that.
  static RingRound sum(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                       std::span<float> data, const RingCodec& codec = {});
  // data ← the root's.
  static RingRound broadcast(const RingPlace& place, std::size_t root, std::uint16_t kind,
                             std::uint32_t round, std::span<float> data);
  RingRound(const RingRound&) = delete;
  RingRound& operator=(const RingRound&) = delete;

  // Goes on, up to some megabytes; true when the result is there and what the others need of this
  // member has been sent.
  bool step();
  // What step() waits for where it is not done: something from the member before, and to be able to
  // send to the one behind.
  struct Needs {
    bool to_read, to_write;
  };
  Needs needs() const;
  // Until one of them is there, or not at all. Throws `late`, `cancelled`.
  void wait(const Deadline& deadline) const;

 private:
  // In fragments. What is sent are this member's own, then what has been received, as it comes; of
  // what is received the first are added to data, the others replace it.
  struct Plan {
    RingStream sent, received;
    std::size_t own, added, to_send, to_receive;
    std::size_t partial = 0;  // of what is sent, the first: partial sums
  };
  RingRound(const RingPlace& place, std::uint16_t kind, std::uint32_t round, const Plan& plan,
            std::span<float> data, const RingCodec& codec);
  bool send();
  bool receive();
  void use(std::span<const std::byte> piece);
  std::span<std::byte> memory_for(const FrameHeader& header);
  // Of the fragment that is next to be sent: whether all of it is there, or a part, which can go
  // ahead where no checksum needs the whole.
  bool whole() const { return gone_ < plan_.own + come_; }
  bool ahead() const { return gone_ == plan_.own + come_ && part_ > 0 && !place_.next.checked(); }
  bool adds() const { return come_ < plan_.added; }
  bool encodes() const { return codec_.codec != Codec::none; }
  std::size_t bytes(std::span<const float> fragment) const {
    return encoded_size(codec_.codec, fragment.size());
  }
  std::uint64_t correlation(std::size_t fragment) const {
    return std::uint64_t{round_} << 32 | fragment;
  }

  const RingPlace place_;
  const std::uint16_t kind_;
  const std::uint32_t round_;
  Plan plan_;
  // Where values are encoded, fragments lie so in their place in data: from when they are sent, or
  // have come to be sent on, until they have gone.
  const std::span<float> data_;
  const RingCodec codec_;
  std::size_t gone_ = 0, come_ = 0;
  std::size_t part_ = 0;  // bytes that have come in pieces of the fragment that is being received
  // Where a fragment that is to be added lies when it does not come in pieces.
  const std::unique_ptr<float[]> scratch_;
  const Connection::Place into_;
  const Connection::Piece by_piece_;
};

// To their end.
void all_reduce(const RingPlace& place, std::uint16_t kind, std::uint32_t round,
                std::span<float> data, const Deadline& deadline, const RingCodec& codec = {});
void broadcast(const RingPlace& place, std::size_t root, std::uint16_t kind, std::uint32_t round,
               std::span<float> data, const Deadline& deadline);

}  // namespace leashed
