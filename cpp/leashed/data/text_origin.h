// Lines of text files, cut into parts of about the same size at the ends of lines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leashed/data/byte_source.h"
#include "leashed/data/row_origin.h"

namespace leashed {

// Turns whole lines into rows; the last may have no newline. 64 bytes behind the text may be read.
class LineParser {
 public:
  virtual ~LineParser() = default;
  virtual ParsedRows parse(std::string_view lines) const = 0;
};

class LineFormat {
 public:
  virtual ~LineFormat() = default;
  // The parser of a file that begins with these whole lines, of which the first is not empty.
  // Takes the header away from them, where that is one.
  virtual std::shared_ptr<const LineParser> begin(std::string_view& lines) const = 0;
};

class TextOrigin final : public RowOrigin {
 public:
  // The n-th file from its beginning.
  using Open =
      std::function<std::unique_ptr<ByteSource>(std::size_t n, const std::atomic<bool>& stop)>;
  static constexpr std::size_t kLongestLine = std::size_t{64} << 20;

  // Parts have about so many bytes. again: whether files can be opened more than once.
  TextOrigin(std::vector<std::string> names, Open open, std::unique_ptr<const LineFormat> format,
             std::size_t part_bytes, bool again)
      : names_(std::move(names)),
        open_(std::move(open)),
        format_(std::move(format)),
        part_bytes_(part_bytes),
        again_(again) {}

  // Throws Error where a line is longer than kLongestLine, or a header lacks something, and what
  // opening and reading throw.
  std::unique_ptr<Part> next(const std::atomic<bool>& stop) override;
  bool rewind() override;
  const std::vector<std::string>& names() const override { return names_; }
  const char* unit() const override { return "line"; }

 private:
  struct Text;
  std::unique_ptr<Text> next_of_file(const std::atomic<bool>& stop);

  const std::vector<std::string> names_;
  const Open open_;
  const std::unique_ptr<const LineFormat> format_;
  const std::size_t part_bytes_;
  const bool again_;
  std::size_t file_ = 0;
  std::unique_ptr<ByteSource> source_;  // of that file; null: it is not open
  std::shared_ptr<const LineParser> parser_;
  std::string rest_;  // of a line that the last part was cut before
  bool begins_ = true;
};

}  // namespace leashed
