#include "leashed/data/svmlight.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "leashed/base/error.h"
#include "leashed/data/parse_number.h"

namespace leashed {
namespace {

// Of one line.
class Parser {
 public:
  Parser(std::string_view line, RowFormat format, SvmlightRows& rows)
      : text_(line),
        with_fields_(format == RowFormat::libffm),
        line_end_(std::min(line.size(), line.find('#'))),
        rows_(rows) {}

  void row() {
    skip_blanks();
    if (at_ == line_end_) return;
    rows_.targets.push_back(number("the target"));
    field_end("the target");
    for (skip_blanks(); at_ < line_end_; skip_blanks()) {
      if (text_.substr(at_, 4) == "qid:") {
        while (at_ < line_end_ && !blank(text_[at_])) ++at_;
        continue;
      }
      if (with_fields_) rows_.fields.push_back(number_before_colon("field"));
      const std::int32_t column = number_before_colon("column");
      const std::size_t begin = at_;
      const auto value = static_cast<float>(number("the value"));
      if (!std::isfinite(value)) {
        at_ = begin;
        fail("the value is beyond float32");
      }
      field_end("the value");
      rows_.columns.push_back(column);
      rows_.values.push_back(value);
    }
    rows_.offsets.push_back(static_cast<std::int64_t>(rows_.columns.size()));
  }

 private:
  // One digit, a point, digits: most values are such, and this is several times as fast as the
  // general conversion.
  bool digit(std::size_t at) const {
    return at < line_end_ && text_[at] >= '0' && text_[at] <= '9';
  }
  double number(const char* what) {
    if (digit(at_) && (at_ + 1 == line_end_ || blank(text_[at_ + 1]))) return text_[at_++] - '0';
    const std::size_t begin = at_;
    if (at_ < line_end_ && text_[at_] == '+' && at_ + 1 < line_end_ && text_[at_ + 1] != '-') ++at_;
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + line_end_, value);
    const auto after = static_cast<std::size_t>(end - text_.data());
    const bool small =
        error == std::errc::result_out_of_range && is_small(text_.substr(at_, after - at_));
    if (error == std::errc::invalid_argument || (error != std::errc() && !small)) {
      at_ = begin;
      fail(std::string("expected a finite number for ") + what);
    }
    if (small) value = 0;
    if (!std::isfinite(value)) {
      at_ = begin;
      fail(std::string(what) + " is not finite");
    }
    at_ = after;
    return value;
  }

  std::int32_t number_before_colon(const char* what) {
    const std::size_t begin = at_;
    std::int64_t number = 0;
    while (digit(at_) && number <= kLargest) number = number * 10 + (text_[at_++] - '0');
    if (at_ == begin || number > kLargest) {
      at_ = begin;
      fail(number > kLargest
               ? std::string("the ") + what + "'s number is beyond 2147483646"
               : std::string("expected a ") + what + "'s number, a whole number from 0");
    }
    if (at_ == line_end_ || text_[at_] != ':') {
      fail(std::string("expected ':' after the ") + what + "'s number");
    }
    ++at_;
    return static_cast<std::int32_t>(number);
  }

  void field_end(const char* what) {
    if (at_ < line_end_ && !blank(text_[at_])) {
      fail(std::string("expected a space after ") + what);
    }
  }

  static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  void skip_blanks() {
    while (at_ < line_end_ && blank(text_[at_])) ++at_;
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error("column " + std::to_string(at_ + 1) + ": " + why);
  }

  static constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max() - 1;

  const std::string_view text_;
  const bool with_fields_;
  const std::size_t line_end_;
  std::size_t at_ = 0;
  SvmlightRows& rows_;
};

}  // namespace

void add_svmlight_row(std::string_view line, RowFormat format, SvmlightRows& rows) {
  Parser(line, format, rows).row();
}

}  // namespace leashed
