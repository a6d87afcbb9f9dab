// The rows of tables that a policy server has for its lanes (cluster/mode_messages.h). A lane looks
// up the rows of its lease, once, and pushes their gradients behind those of the parameters: so it
// holds those of one batch, until it has pushed them, has another lease, or is gone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/server/row_holder.h"

namespace leashed {

class LaneRows {
 public:
  // bytes: to be added to of memory that connections have. What is given must stay.
  LaneRows(RowHolder& holder, std::atomic<std::uint64_t>& bytes);

  // A connection's.
  struct Of {
    bool there = false;             // the rows of its lease have been looked up
    std::uint64_t ticket = 0;       // of that lease
    bool given = false;             // of a round: their gradients have come
    RowKeys keys;                   // of these
    std::size_t floats = 0;         // of their gradients, as they are pushed
    AlignedArray<float> gradients;  // the same as RowAggregator keeps them
    AlignedArray<std::byte> asked;
    std::shared_ptr<AlignedArray<float>> reply;  // till it has gone

    std::uint64_t bytes() const {
      return gradients.size() * sizeof(float) + asked.size() +
             (reply ? reply->size() * sizeof(float) : 0);
    }
  };

  // Where a frame that looks up goes.
  std::span<std::byte> place(Of& of, std::size_t length);
  // The rows that the bytes from `begin` on of such a frame ask for, which `of.reply` keeps.
  // trains: ids without a row may get one, and the rows are held; unless it admits none, since
  // what is made of them is not taken. Throws Error where they ask for none, and holds nothing
  // then.
  std::span<const std::byte> look_up(Of& of, std::size_t begin, std::size_t length, bool trains,
                                     bool admits = true);
  std::size_t looked_up() const { return looked_up_; }  // ids, by that
  // For any thread: bytes of look-ups, rows and gradients with their frames' headers, but for those
  // of pushes, and the least of them: of each id itself, and its floats there, and back where it is
  // trained.
  struct Moved {
    std::uint64_t bytes = 0, least = 0;
  };
  Moved moved() const;
  // Has the gradients that are pushed where RowAggregator takes them, and the rows in `keys`.
  void take(Of& of, const float* pushed, RowKeys& keys);
  // Lets the rows go that it has.
  void let_go(Of& of);
  // Or those of what was taken, whose memory it has again.
  void let_go(Of& of, RowKeys& keys);

 private:
  // At least so many floats, whatever they are; counted.
  void reach(AlignedArray<float>& memory, std::size_t floats);

  RowHolder& holder_;
  std::atomic<std::uint64_t>& bytes_;
  std::vector<std::size_t> dims_;  // by table
  std::size_t looked_up_ = 0;
  std::atomic<std::uint64_t> moved_{0}, least_{0};  // relaxed: counts for whoever looks on
  // Of the frame that is answered, by table.
  std::vector<std::span<const std::uint64_t>> ids_;
  std::vector<float*> values_;
};

}  // namespace leashed
