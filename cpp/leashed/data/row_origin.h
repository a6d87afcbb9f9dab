// Where a stream's rows come from: parts, handed out in order, that several threads turn into rows
// at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "leashed/data/row_block.h"

namespace leashed {

// What was no row: where it stands, and why.
struct BadRow {
  std::uint64_t number;  // of the line, or the row, from 1: within its part
  std::size_t before;    // rows of the part before it
  std::string reason;
};

// Rows that were made of a part.
struct ParsedRows {
  RowBlock block;
  std::uint64_t lines = 0;  // that the part has
  std::uint64_t bad = 0;
  std::vector<BadRow> first_bad = {};  // at most kKept
  static constexpr std::size_t kKept = 100;

  void reject(std::uint64_t number, std::size_t before, std::string reason) {
    if (bad++ < kKept) first_bad.push_back({number, before, std::move(reason)});
  }
};

class RowOrigin {
 public:
  // Something of it that can be turned into rows apart from everything else.
  class Part {
   public:
    virtual ~Part() = default;
    virtual ParsedRows parse() const = 0;

    std::size_t file = 0;            // which of names() it is of
    bool begins_file = false;        // and whether as its first: then numbers begin anew
    std::uint64_t lines_before = 0;  // lines that were read before it and are in no part
    std::size_t bytes = 0;
  };

  virtual ~RowOrigin() = default;
  // The next part; null at the end. From one thread at a time. Returns soon, with anything, once
  // `stop` is set.
  virtual std::unique_ptr<Part> next(const std::atomic<bool>& stop) = 0;
  // Begins again; false where that cannot be.
  virtual bool rewind() = 0;
  // Of its files, or what it is called where it is none.
  virtual const std::vector<std::string>& names() const = 0;
  // What a bad row is called by number: "line", "row".
  virtual const char* unit() const = 0;
};

}  // namespace leashed
