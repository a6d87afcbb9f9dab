// A table's file: a header with what the table is, then blocks of rows with a checksum each, then
// how many there were. Written beside its place, and put there when it is complete. One of changes
// has the rows that are others than in the file before, and says which ids have none any more. One
// of what was touched has no rows that are as their table began with them.
//
// A child that is forked meanwhile, by a signal's handler, has the same open file, of one offset.
// So the parent alone goes on writing, and who reads has an offset of his own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leashed/base/descriptor.h"

namespace leashed {

struct SavedHeader {
  std::string description;
  std::uint64_t floats = 0;  // of a row
  std::uint64_t steps = 0, touched = 0;
  std::uint16_t period = 0;
  std::vector<std::uint64_t> staleness{};  // what the staleness policy has gathered
  bool changes = false;                    // of rows, not all of them
  std::vector<std::uint64_t> gone{};       // ids; a row in this same file is of a later time
  // Not nothing: rows that the file has not are as they begin, with this for their rule's state.
  std::optional<float> rest{};
};
struct SavedRow {
  std::uint64_t id;
  std::uint32_t version;
  std::uint16_t touched, period;
};

// Throws Error where the file cannot be written, and in a child that was forked since it was made.
class SavedWriter {
 public:
  SavedWriter(std::string path, const SavedHeader& header);
  ~SavedWriter();

  // The next row's floats, to be written to until the next call.
  float* add(const SavedRow& row);
  // flush: it is on the disk then.
  void finish(bool flush = true);

 private:
  void write_block();
  void write(const void* bytes, std::size_t size);
  [[noreturn]] void fail(const char* what) const;

  const std::uint64_t forks_;  // of the process that it was made in
  const std::string path_, partial_;
  Descriptor file_;
  const std::size_t row_bytes_;
  std::vector<std::byte> block_;
  std::size_t in_block_ = 0;
  std::uint64_t rows_ = 0;
  bool finished_ = false;
};

// Throws Error where the file cannot be read, is none of a table, or is damaged.
class SavedReader {
 public:
  explicit SavedReader(std::string path);

  const SavedHeader& header() const { return header_; }
  // The floats of the next row, until the next call; null: that was all.
  const float* next(SavedRow& row);
  // The first row is next again, of the same file whatever its name is by now.
  void rewind();

 private:
  bool read_block();
  void read(void* bytes, std::size_t size);
  [[noreturn]] void fail(const std::string& what) const;

  const std::string path_;
  Descriptor file_;
  SavedHeader header_;
  off_t next_ = 0, rows_begin_ = 0;  // in the file
  std::vector<std::byte> block_;
  std::size_t rows_ = 0, in_block_ = 0;  // of the block, and given of them
  std::uint64_t given_ = 0;
};

}  // namespace leashed
