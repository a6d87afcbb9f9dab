#include "leashed/table/saved.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"
#include "leashed/base/forked.h"
#include "leashed/base/partial_name.h"

namespace leashed {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'l', 's', 'h', 't', 'a', 'b', 'l', 'e'};
// All rows; changes, with ids that are gone; those that are not as they began.
constexpr std::uint32_t kFormat = 1, kChanges = 2, kTouched = 3;
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;  // about
constexpr std::uint32_t kEnd = ~std::uint32_t{0};          // in place of a block's rows
constexpr std::uint32_t kLongest = 1 << 24;                // description
constexpr std::uint32_t kMostNumbers = 1 << 16;            // of the staleness policy

struct FileHeader {
  char magic[8];
  std::uint32_t format, description;
  std::uint64_t floats, steps, touched;
  std::uint32_t period, staleness;
};
struct BlockHeader {
  std::uint32_t rows, checksum;
};
static_assert(sizeof(FileHeader) == 48 && sizeof(BlockHeader) == 8 && sizeof(SavedRow) == 16);

std::size_t rows_of_block(std::size_t row_bytes) {
  return std::max<std::size_t>(1, kBlockBytes / row_bytes);
}

std::uint32_t checksum_of(const FileHeader& begin, const SavedHeader& header) {
  const std::string& text = header.description;
  const std::vector<std::uint64_t>& numbers = header.staleness;
  std::uint32_t checksum = crc32c(&begin, sizeof(begin));
  checksum = crc32c(text.data(), text.size(), checksum);
  checksum = crc32c(numbers.data(), numbers.size() * sizeof(std::uint64_t), checksum);
  if (header.rest) checksum = crc32c(&*header.rest, sizeof(float), checksum);
  return crc32c(header.gone.data(), header.gone.size() * sizeof(std::uint64_t), checksum);
}

}  // namespace

SavedWriter::SavedWriter(std::string path, const SavedHeader& header)
    : forks_(forks()),
      path_(std::move(path)),
      partial_(partial_name(path_)),
      file_(open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      row_bytes_(sizeof(SavedRow) + header.floats * sizeof(float)),
      block_(rows_of_block(row_bytes_) * row_bytes_) {
  if (file_.get() < 0) fail("cannot be written");
  FileHeader begin{};
  std::copy_n(kMagic, sizeof(kMagic), begin.magic);
  begin.format = header.changes ? kChanges : header.rest ? kTouched : kFormat;
  begin.description = static_cast<std::uint32_t>(header.description.size());
  begin.floats = header.floats;
  begin.steps = header.steps;
  begin.touched = header.touched;
  begin.period = header.period;
  begin.staleness = static_cast<std::uint32_t>(header.staleness.size());
  const std::uint32_t checksum = checksum_of(begin, header);
  write(&begin, sizeof(begin));
  write(header.description.data(), header.description.size());
  write(header.staleness.data(), header.staleness.size() * sizeof(std::uint64_t));
  if (header.changes) {
    const std::uint64_t gone = header.gone.size();
    write(&gone, sizeof(gone));
    write(header.gone.data(), gone * sizeof(std::uint64_t));
  }
  if (header.rest) write(&*header.rest, sizeof(float));
  write(&checksum, sizeof(checksum));
}

SavedWriter::~SavedWriter() {
  if (!finished_ && forks_ == forks()) unlink(partial_.c_str());
}

void SavedWriter::fail(const char* what) const {
  throw Error("'" + path_ + "' " + what + ": " + std::strerror(errno));
}

void SavedWriter::write(const void* bytes, std::size_t size) {
  if (forks_ != forks()) {
    throw Error("'" + path_ +
                "' was being written when this process was forked; the parent goes on with it");
  }
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t n = ::write(file_.get(), next, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot be written");
    next += n;
    size -= static_cast<std::size_t>(n);
  }
}

float* SavedWriter::add(const SavedRow& row) {
  if ((in_block_ + 1) * row_bytes_ > block_.size()) write_block();
  std::byte* const to = block_.data() + in_block_++ * row_bytes_;
  std::memcpy(to, &row, sizeof(row));
  return reinterpret_cast<float*>(to + sizeof(row));
}

void SavedWriter::write_block() {
  const BlockHeader header{static_cast<std::uint32_t>(in_block_),
                           crc32c(block_.data(), in_block_ * row_bytes_)};
  write(&header, sizeof(header));
  write(block_.data(), in_block_ * row_bytes_);
  rows_ += in_block_;
  in_block_ = 0;
}

void SavedWriter::finish(bool flush) {
  if (in_block_ > 0) write_block();
  const BlockHeader end{kEnd, crc32c(&rows_, sizeof(rows_))};
  write(&end, sizeof(end));
  write(&rows_, sizeof(rows_));
  if (flush && fsync(file_.get()) != 0) fail("cannot be written");
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail("cannot be written");
  finished_ = true;
}

SavedReader::SavedReader(std::string path)
    : path_(std::move(path)), file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_.get() < 0) fail(std::string("cannot be read: ") + std::strerror(errno));
  FileHeader begin;
  read(&begin, sizeof(begin));
  if (!std::equal(kMagic, kMagic + sizeof(kMagic), begin.magic)) fail("is no file of a table");
  if (begin.format < kFormat || begin.format > kTouched) {
    fail("has format " + std::to_string(begin.format) + ", which this version does not know");
  }
  if (begin.description > kLongest || begin.floats > kLongest || begin.staleness > kMostNumbers) {
    fail("is damaged: its header");
  }
  std::string& text = header_.description;
  text.resize(begin.description);
  read(text.data(), text.size());
  header_.staleness.resize(begin.staleness);
  const std::size_t numbers = header_.staleness.size() * sizeof(std::uint64_t);
  read(header_.staleness.data(), numbers);
  header_.changes = begin.format == kChanges;
  std::uint64_t gone = 0;
  if (header_.changes) {
    read(&gone, sizeof(gone));
    struct stat all;
    if (fstat(file_.get(), &all) != 0 ||
        gone > static_cast<std::uint64_t>(all.st_size) / sizeof(std::uint64_t)) {
      fail("is damaged: its header");
    }
    header_.gone.resize(gone);
    read(header_.gone.data(), gone * sizeof(std::uint64_t));
  }
  if (begin.format == kTouched) read(&header_.rest.emplace(), sizeof(float));
  std::uint32_t checksum = 0;
  read(&checksum, sizeof(checksum));
  if (checksum != checksum_of(begin, header_)) fail("is damaged: its header");
  header_.floats = begin.floats;
  header_.steps = begin.steps;
  header_.touched = begin.touched;
  header_.period = static_cast<std::uint16_t>(begin.period);
  rows_begin_ = next_;
}

void SavedReader::rewind() {
  next_ = rows_begin_;
  rows_ = in_block_ = 0;
  given_ = 0;
}

void SavedReader::fail(const std::string& what) const { throw Error("'" + path_ + "' " + what); }

void SavedReader::read(void* bytes, std::size_t size) {
  char* to = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t n = pread(file_.get(), to, size, next_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) fail("is damaged: it ends too early");
    to += n;
    next_ += n;
    size -= static_cast<std::size_t>(n);
  }
}

bool SavedReader::read_block() {
  const std::size_t row_bytes = sizeof(SavedRow) + header_.floats * sizeof(float);
  BlockHeader header;
  read(&header, sizeof(header));
  const bool end = header.rows == kEnd;
  if (!end && (header.rows == 0 || header.rows > rows_of_block(row_bytes)))
    fail("is damaged: a block's header");
  block_.resize(end ? sizeof(std::uint64_t) : header.rows * row_bytes);
  read(block_.data(), block_.size());
  if (crc32c(block_.data(), block_.size()) != header.checksum) {
    fail("is damaged: the block after " + std::to_string(given_) + " rows");
  }
  rows_ = end ? 0 : header.rows;
  in_block_ = 0;
  if (!end) return true;
  std::uint64_t all;
  std::memcpy(&all, block_.data(), sizeof(all));
  if (all != given_) fail("is damaged: rows are missing");
  return false;
}

const float* SavedReader::next(SavedRow& row) {
  if (in_block_ == rows_ && !read_block()) return nullptr;
  const std::size_t row_bytes = sizeof(SavedRow) + header_.floats * sizeof(float);
  const std::byte* const from = block_.data() + in_block_++ * row_bytes;
  ++given_;
  std::memcpy(&row, from, sizeof(row));
  return reinterpret_cast<const float*>(from + sizeof(row));
}

}  // namespace leashed
