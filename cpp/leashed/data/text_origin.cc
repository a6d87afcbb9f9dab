#include "leashed/data/text_origin.h"

#include <algorithm>
#include <cstring>

#include "leashed/base/error.h"

namespace leashed {
namespace {

constexpr std::size_t kPadding = 64;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Behind the last newline of that text, from `begin` on; 0: there is none.
std::size_t end_of_lines(const char* text, std::size_t size, const char* begin) {
  const void* const newline = memrchr(text, '\n', size);
  return newline ? static_cast<std::size_t>(static_cast<const char*>(newline) - begin) + 1 : 0;
}

// The last may have no newline.
std::uint64_t lines_of(std::string_view text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) +
         (!text.empty() && text.back() != '\n');
}

}  // namespace

struct TextOrigin::Text final : RowOrigin::Part {
  ParsedRows parse() const override { return parser ? parser->parse(lines) : ParsedRows{}; }

  std::unique_ptr<char[]> memory;
  std::string_view lines;
  std::shared_ptr<const LineParser> parser;  // null: there is no row in it
};

// Null at its end.
std::unique_ptr<TextOrigin::Text> TextOrigin::next_of_file(const std::atomic<bool>& stop) {
  auto part = std::make_unique<Text>();
  std::size_t room = std::max(part_bytes_, rest_.size());
  part->memory = std::make_unique_for_overwrite<char[]>(room + kPadding);
  std::memcpy(part->memory.get(), rest_.data(), rest_.size());
  std::size_t size = rest_.size(), end = 0;
  for (bool more = true; more && end == 0;) {
    while (size < room && end == 0) {
      char* const at = part->memory.get() + size;
      const std::size_t bytes = source_->read(at, room - size, stop);
      // Relaxed: a hint; what has been read is of no use then.
      if (stop.load(std::memory_order_relaxed)) return nullptr;
      size += bytes;
      if (bytes == 0) {
        more = false;
        break;
      }
      // Whoever writes has no more at present: whole lines are not to wait for it.
      if (size < room) end = end_of_lines(at, bytes, part->memory.get());
    }
    if (end == 0) end = end_of_lines(part->memory.get(), size, part->memory.get());
    if (!more) end = size;
    if (end > 0 || !more) break;
    if (room >= kLongestLine) {
      throw Error(names_[file_] + ": a line is longer than " + std::to_string(kLongestLine >> 20) +
                  " MiB; is it a text file?");
    }
    auto larger = std::make_unique_for_overwrite<char[]>(2 * room + kPadding);
    std::memcpy(larger.get(), part->memory.get(), size);
    part->memory = std::move(larger);
    room *= 2;
  }
  rest_.assign(part->memory.get() + end, size - end);
  if (end == 0) return nullptr;
  std::memset(part->memory.get() + end, 0, kPadding);
  part->bytes = end;
  part->lines = {part->memory.get(), end};
  return part;
}

std::unique_ptr<RowOrigin::Part> TextOrigin::next(const std::atomic<bool>& stop) {
  while (file_ < names_.size()) {
    if (!source_) {
      source_ = open_(file_, stop);
      begins_ = true;
      rest_.clear();
    }
    std::unique_ptr<Text> part = next_of_file(stop);
    if (!part) {
      if (stop.load(std::memory_order_relaxed)) return nullptr;
      source_.reset();
      ++file_;
      parser_.reset();
      continue;
    }
    part->file = file_;
    part->begins_file = begins_;
    std::string_view& lines = part->lines;
    if (begins_ && lines.starts_with(kByteOrderMark)) lines.remove_prefix(kByteOrderMark.size());
    begins_ = false;
    if (!parser_) {
      const std::size_t first = lines.find_first_not_of("\r\n");
      if (first != std::string_view::npos) {
        const std::string_view all = lines;
        lines.remove_prefix(first);
        try {
          parser_ = format_->begin(lines);
        } catch (const Error& error) {
          throw Error(names_[file_] + ": " + error.what());
        }
        part->lines_before = lines_of(all.substr(0, all.size() - lines.size()));
      } else {
        part->lines_before = lines_of(lines);
        lines = {};
      }
    }
    part->parser = parser_;
    return part;
  }
  return nullptr;
}

bool TextOrigin::rewind() {
  if (!again_) return false;
  file_ = 0;
  source_.reset();
  parser_.reset();
  return true;
}

}  // namespace leashed
