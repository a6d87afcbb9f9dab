// What trainers and embedding servers say to each other, in frames (net/frame.h). All numbers are
// little-endian; a table's part is there for each table of which the server has rows, in the order
// of the tables (RowPlacement::has).
//
//   trainer                              server
//   kRowHello   RowHello                 kRowWelcome RowWelcome    first of all over a connection
//   kLookup     LookupHead, then         kRows       the rows' values: of each table dim floats for
//               counts, u32, of each                 each id, in their order; of pools below
//               table, and 0 where they
//               are an odd number; then
//               their ids, u64, distinct
//   kPushRows   PushHead, then           kSettled    Settled
//               gradients as kRows has
//               the values
//   kDropRows   RowDrop                  (nothing)
//   kProbe      as sync servers have it
//
// A frame's correlation is its ticket, and the same in what answers it: the number of the batch
// among those that the client has looked up in its life, from 1 on. Under its ticket the server
// keeps which rows a batch that trains has read, and their versions, until it is pushed or dropped;
// of a lookup that only reads it keeps nothing. So a push has gradients alone.
//
// Where a lookup is for pools, of features whose rows the server pools (kernels/embedding.h):
//
//   behind the counts   where it says so, of each table, u32, of how many of its ids the values are
//                       wanted, the first ones
//   behind the ids      of each pool PoolHead; of each of its examples, which have ids here, how
//                       many entries; of each entry the place of its id among those of its table in
//                       this lookup, both of `width` bytes; zeros up to whole words of 4 bytes; the
//                       entries' weights, float, where it is weighted; zeros up to whole words of 8
//   kRows               behind the values dim floats of each example of each pool; then, of each
//                       pool whose winners are wanted, of each of these floats which of the
//                       example's entries here was the largest, of `width` bytes; zeros up to words
//                       of 4
//   kPushRows           behind the gradients of the values those of the pools, as kRows has these
//
// Under its ticket the server keeps the entries as well, and of maxima which were the largest.
//
// Pushes have numbers of their own, from 1 on. A client keeps a push until the server has said that
// it is applied. After a cut it says hello with the same life, and what it keeps again; of a push
// that is applied already it is told once more what became of it. A server that was started again
// tells by its boot that it is another, the last number that it has, and what became of the last
// ones, which is in its snapshot with the rows: later ones that were said to be applied are lost,
// and the client counts them, as what its rows had when it said so less what they have; of later
// ones that are kept it looks the rows up once more.
// (models/row_tickets.pml is this.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "leashed/base/words_digest.h"
#include "leashed/cluster/messages.h"
#include "leashed/table/row_placement.h"
#include "leashed/table/row_publication.h"

namespace leashed {

// What both know of a table.
struct ServedTable {
  std::string name;
  std::size_t dim;
  std::uint64_t rows;  // 0: it grows
};

// Of the tables of which a server has rows, added in their order: what RowHello has of them.
class RowDigest {
 public:
  void add(std::size_t number, const ServedTable& table, const RowPlacement::Shards& shards) {
    digest_.add(std::uint64_t{number});
    digest_.add(std::uint64_t{table.dim});
    digest_.add(table.rows);
    digest_.add(table.name);
    for (std::size_t shard = 0; shard < shards.size(); ++shard) {
      digest_.add(std::uint64_t{shards[shard]});
    }
  }
  std::uint64_t value() const { return digest_.value(); }

 private:
  WordsDigest digest_;
};

// Tickets that a client may have at once: of the batch in hand, of those ahead, and of those that
// are pushed and not settled.
inline constexpr std::size_t kTickets = 12;
// Batches ahead of the one in hand, at most: as many pushes may be under way.
inline constexpr std::size_t kMostAhead = (kTickets - 1) / 2;

struct RowHello {
  std::uint64_t client;  // a trainer's thread: no two at a time have the same
  // Of the client's process: no other one ever has it, and later ones have larger numbers, so that
  // a hello of a dead one that comes late is refused.
  std::uint64_t life;
  std::uint64_t rows;  // RowDigest's: what both must have alike
};

struct LookupHead {
  // 0, or of one that trains: ids without a row may get one, and a push or a drop will come. 1: the
  // push is a step of all tables. kOfOne + k: of the k-th of those of which the server has rows,
  // and no other has ids here.
  std::uint32_t trains;
  std::uint32_t tables;  // of which the server has rows
  std::uint32_t pools = 0;
  std::uint32_t wants = 0;  // 1: not the values of all ids; or 0
};

inline constexpr std::uint32_t kOfOne = 2;

struct PoolHead {
  std::uint32_t table;     // by its place among those of which the server has rows
  std::uint8_t pooling;    // Pooling: sum, mean or max
  std::uint8_t width;      // 2 or 4
  std::uint8_t weighted;   // 1: entries have weights; or 0
  std::uint8_t winners;    // 1: of a maximum they are wanted; or 0
  std::uint32_t examples;  // 1 at least, each of an entry at least
  std::uint32_t entries;
};

struct PushHead {
  std::uint64_t number;
  std::uint64_t examples;  // that its gradients are of
};

// Pushes of a life that a server's rows have: those up to a number, but for what is left out of
// them, or lost.
struct InRows {
  std::uint64_t pushes = 0;
  std::uint64_t examples = 0;  // of these

  friend bool operator==(const InRows&, const InRows&) = default;
};

struct RowDrop {
  std::uint64_t zero = 0;
};

// What became of a push. One that is not applied counts as applied for its number, and changes
// nothing.
enum class Settling : std::uint64_t {
  applied,
  not_finite,  // its gradients are not
  expired,     // the rows of its ticket were let go, which it had held too long
};

// That of the last kTickets pushes of a life: a client waits for no more of them.
class Outcomes {
 public:
  Outcomes() = default;
  explicit Outcomes(std::uint64_t bits) : bits_(bits) {}
  // Of the next one, so many numbers later: those between are lost, and nobody asks for them.
  void add(Settling next, std::uint64_t later) {
    bits_ = later < kTickets ? bits_ << kBits * later & kAll : 0;
    bits_ |= static_cast<std::uint64_t>(next);
  }
  // Of the one that was followed by so many; nothing of one before the last kTickets, or of bits
  // that add() does not make.
  std::optional<Settling> operator[](std::uint64_t followed) const {
    if (followed >= kTickets) return std::nullopt;
    const std::uint64_t found = bits_ >> kBits * followed & ((1 << kBits) - 1);
    if (found > static_cast<std::uint64_t>(Settling::expired)) return std::nullopt;
    return static_cast<Settling>(found);
  }
  std::uint64_t bits() const { return bits_; }

 private:
  static constexpr std::size_t kBits = 2;
  static constexpr std::uint64_t kAll = (std::uint64_t{1} << kBits * kTickets) - 1;

  std::uint64_t bits_ = 0;
};

struct RowWelcome {
  std::uint64_t boot;     // of the server's process: no other one ever has it
  std::uint64_t applied;  // the last push of that life
  Outcomes outcomes;      // of that and those before it
  InRows in_rows;         // up to that
};

struct Settled {
  std::uint64_t applied;  // the last push
  Settling settling = Settling::applied;
  RowPublication publication{};  // of that push
  InRows in_rows{};              // up to that push
};

static_assert(sizeof(RowHello) == 24 && sizeof(RowWelcome) == 40 && sizeof(LookupHead) == 16 &&
              sizeof(PoolHead) == 16 && sizeof(PushHead) == 16 && sizeof(RowDrop) == 8 &&
              sizeof(Settled) == 368 && std::is_trivially_copyable_v<Settled>);

// Clients of a trainer have numbers that follow one another, from a multiple of this on.
inline constexpr std::uint64_t kClientsOfATrainer = std::uint64_t{1} << 16;

// Pools of a lookup, at most.
inline constexpr std::size_t kPools = 4096;

inline constexpr auto kRowLimits = by_kind({{kRowHello, sizeof(RowHello)},
                                            {kRowWelcome, sizeof(RowWelcome)},
                                            {kLookup, 64 << 20},
                                            {kRows, 256 << 20},
                                            {kPushRows, 256 << 20},
                                            {kSettled, sizeof(Settled)},
                                            {kDropRows, sizeof(RowDrop)},
                                            {kShare, kShareFrame},
                                            {kProbe, 1}});

}  // namespace leashed
