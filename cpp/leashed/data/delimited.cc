#include "leashed/data/delimited.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/data/eight_digits.h"
#include "leashed/data/kernels.h"
#include "leashed/data/parse_number.h"

namespace leashed {
namespace {

using Kind = DelimitedColumn::Kind;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::string apart_by(char separator) {
  switch (separator) {
    case '\t':
      return "tabs";
    case ',':
      return "commas";
    default:
      return quoted({&separator, 1});
  }
}

// ln(1 + x) of whole numbers that are common.
class Logarithms {
 public:
  Logarithms() {
    for (std::size_t i = 0; i < kMost; ++i) {
      of_[i] = static_cast<float>(std::log1p(static_cast<double>(i)));
    }
  }
  float operator()(std::uint64_t n) const {
    return n < kMost ? of_[n] : static_cast<float>(std::log1p(static_cast<double>(n)));
  }
  float operator()(double x) const {
    if (!(x > 0)) return 0;
    if (x < kMost) {
      const auto i = static_cast<std::size_t>(x);
      if (static_cast<double>(i) == x) return of_[i];
    }
    return static_cast<float>(std::log1p(x));
  }

 private:
  static constexpr std::size_t kMost = 1 << 14;
  std::array<float, kMost> of_;
};
const Logarithms logarithms;

// A number, or a word that a table's booleans are written as.
bool parse_value(std::string_view text, double& value) {
  if (parse_number(text, value)) return true;
  const bool yes = text == "True" || text == "true";
  value = yes ? 1 : 0;
  return yes || text == "False" || text == "false";
}

std::size_t end_of_line(std::string_view lines, std::size_t begin) {
  const void* const newline = std::memchr(lines.data() + begin, '\n', lines.size() - begin);
  if (!newline) return lines.size();
  return static_cast<std::size_t>(static_cast<const char*>(newline) - lines.data());
}

std::string_view without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Text in quotes without them; false where they do not end with it.
bool unquote(std::string_view text, std::string& to) {
  to.clear();
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] != '"') {
      to += text[i];
    } else if (i + 1 == text.size()) {
      return true;
    } else if (text[++i] == '"') {
      to += '"';
    } else {
      return false;
    }
  }
  return false;
}

// The fields of a line of which some stand in quotes; false where quotes do not end with a field.
bool split_quoted(std::string_view line, char separator, std::vector<std::string>& fields) {
  fields.clear();
  for (std::size_t at = 0;;) {
    std::size_t end = at;
    if (at < line.size() && line[at] == '"') {
      for (++end; end < line.size() && (line[end] != '"' || line.substr(end, 2) == "\"\""); ++end) {
        if (line[end] == '"') ++end;
      }
      end = std::min(end + 1, line.size());
      std::string& field = fields.emplace_back();
      if (!unquote(line.substr(at, end - at), field)) return false;
      if (end < line.size() && line[end] != separator) return false;
    } else {
      end = std::min(line.find(separator, at), line.size());
      fields.emplace_back(line.substr(at, end - at));
    }
    if (end == line.size()) return true;
    at = end + 1;
  }
}

class DelimitedParser final : public LineParser {
 public:
  // places: of each column, which field of a line it is.
  DelimitedParser(std::shared_ptr<const DelimitedSettings> settings, RowLayout layout,
                  char separator, std::size_t fields, const std::vector<std::size_t>& places)
      : settings_(std::move(settings)),
        layout_(std::move(layout)),
        separator_(separator),
        fields_(fields),
        column_of_(fields) {
    std::size_t number = 0, single = 0, bag = 0, head = 0;
    for (std::size_t c = 0; c < settings_->columns.size(); ++c) {
      const DelimitedColumn& column = settings_->columns[c];
      std::size_t place = 0;
      if (column.kind == Kind::number) place = number++;
      if (column.kind == Kind::id) place = single++;
      if (column.kind == Kind::head) place = head++;
      if (column.kind == Kind::ids) place = bag++;
      column_of_[places[c]] = {&column, place};
    }
    numbers_ = number;
    ids_ = single;
    for (std::size_t f = 0; f < fields_; ++f) {
      if (!column_of_[f].column) continue;
      const Way way = way_of(*column_of_[f].column);
      if (runs_.empty() || runs_.back().way != way || runs_.back().end != f) {
        runs_.push_back({way, f, f});
      }
      runs_.back().end = f + 1;
    }
  }

  ParsedRows parse(std::string_view lines) const override;

 private:
  struct Read {
    const DelimitedColumn* column = nullptr;  // null: the field is passed over
    std::size_t place = 0;                    // among those of its kind
  };
  // How fields that follow each other are read, where they are as they mostly are.
  enum class Way { numbers, hexadecimal, hashes, one_by_one };
  struct Run {
    Way way;
    std::size_t begin, end;  // fields
  };
  static Way way_of(const DelimitedColumn& column);
  // A line of as many fields as there are to be, which end there; the first begins at `begin`.
  // False where the row has to be read again by itself: a field may be none of its kind.
  bool read_line(const char* text, std::size_t begin, const std::uint32_t* ends, RowBlock& block,
                 std::size_t row) const;
  bool read(const Read& field, std::string_view text, RowBlock& block, std::size_t row) const;
  // Takes back what that row, or one behind it, has put into bags.
  static void forget(RowBlock& block, std::size_t row);
  std::string reason(const Read& field, std::string_view text) const;
  std::string wrong_number(std::size_t fields) const {
    return std::to_string(fields) + " fields apart by " + apart_by(separator_) + " instead of " +
           std::to_string(fields_);
  }
  void parse_plain(std::string_view lines, ParsedRows& rows) const;
  void parse_quoted(std::string_view lines, ParsedRows& rows) const;

  const std::shared_ptr<const DelimitedSettings> settings_;
  const RowLayout layout_;
  const char separator_;
  const std::size_t fields_;
  std::vector<Read> column_of_;  // by field
  std::vector<Run> runs_;        // in their order, without fields that are passed over
  std::size_t numbers_ = 0, ids_ = 0;
};

DelimitedParser::Way DelimitedParser::way_of(const DelimitedColumn& column) {
  if (column.kind == Kind::number) return Way::numbers;
  if (column.kind != Kind::id) return Way::one_by_one;
  if (column.encoder.kind == IdEncoder::Kind::hash) return Way::hashes;
  const bool eight = column.encoder.kind == IdEncoder::Kind::hexadecimal &&
                     (column.encoder.digits == 8 || column.encoder.digits == 0);
  return eight ? Way::hexadecimal : Way::one_by_one;
}

void DelimitedParser::forget(RowBlock& block, std::size_t row) {
  for (RowBlock::Bag& bag : block.bags) {
    bag.offsets.resize(row + 1);
    bag.ids.resize(static_cast<std::size_t>(bag.offsets.back()));
  }
}

// What most fields are takes no branch that depends on their text: an empty one among others is
// hard to foresee.
bool DelimitedParser::read_line(const char* text, std::size_t begin, const std::uint32_t* ends,
                                RowBlock& block, std::size_t row) const {
  float* const x = block.x.data() + row * numbers_;
  std::uint64_t* const ids = block.ids.data() + row * ids_;
  for (const Run& run : runs_) {
    std::size_t at = run.begin == 0 ? begin : ends[run.begin - 1] + std::size_t{1};
    bool good = true;
    for (std::size_t f = run.begin; f < run.end; at = ends[f++] + std::size_t{1}) {
      const Read& field = column_of_[f];
      const DelimitedColumn& column = *field.column;
      const std::size_t size = ends[f] - at;
      std::uint64_t number = 0;
      switch (run.way) {
        case Way::numbers: {
          if (!decimal_digits(text + at, size, number) && size > 0) [[unlikely]] {
            if (!read(field, {text + at, size}, block, row)) return false;
            break;
          }
          good &= size > 0 || column.missing;
          const float value = column.log ? logarithms(size > 0 ? number : 0)
                                         : static_cast<float>(static_cast<double>(number));
          x[field.place] = size > 0 ? value : column.missing.value_or(0);
          break;
        }
        case Way::hexadecimal: {
          const bool eight = hexadecimal_digits(text + at, number) && size == 8;
          if (!eight && size > 0) [[unlikely]] {
            if (!read(field, {text + at, size}, block, row)) return false;
            break;
          }
          good &= eight || column.encoder.missing;
          ids[field.place] =
              eight ? number + column.encoder.offset : column.encoder.missing.value_or(0);
          break;
        }
        case Way::hashes:
          ids[field.place] = column.encoder.hash({text + at, size});
          break;
        case Way::one_by_one:
          if (!read(field, {text + at, size}, block, row)) return false;
      }
    }
    if (!good) return false;
  }
  return true;
}

// False where the text is none of that kind.
bool DelimitedParser::read(const Read& field, std::string_view text, RowBlock& block,
                           std::size_t row) const {
  const DelimitedColumn& column = *field.column;
  switch (column.kind) {
    case Kind::id: {
      const auto id = column.encoder(text);
      if (!id) return false;
      block.ids[row * ids_ + field.place] = *id;
      return true;
    }
    case Kind::number: {
      float value = 0;
      if (text.empty()) {
        if (!column.missing) return false;
        value = *column.missing;
      } else {
        double x = 0;
        if (!parse_value(text, x)) return false;
        value = column.log ? logarithms(x) : static_cast<float>(x);
        if (!std::isfinite(value)) return false;
      }
      block.x[row * numbers_ + field.place] = value;
      return true;
    }
    case Kind::label: {
      double x = 0;
      if (!parse_value(text, x) || !is_label(x, settings_->classes)) return false;
      block.labels[row] = static_cast<std::int32_t>(x);
      return true;
    }
    case Kind::head: {
      double x = kUnknown;
      if (!text.empty() && (!parse_value(text, x) || !is_label(x, 2))) return false;
      block.values[row * layout_.values + field.place] = static_cast<float>(x);
      return true;
    }
    case Kind::target:
    case Kind::weight: {
      double x = 0;
      if (!parse_number(text, x)) return false;
      const auto value = static_cast<float>(x);
      const bool weight = column.kind == Kind::weight;
      (weight ? block.weights : block.values)[row] = value;
      return std::isfinite(value) && (!weight || value >= 0);
    }
    case Kind::ids: {
      RowBlock::Bag& bag = block.bags[field.place];
      for (std::size_t at = 0; !text.empty() && at <= text.size();) {
        const std::size_t end = std::min(text.find(column.between, at), text.size());
        const auto id = column.encoder(text.substr(at, end - at));
        if (!id) return false;
        bag.ids.push_back(*id);
        at = end + 1;
      }
      bag.offsets.push_back(static_cast<std::int64_t>(bag.ids.size()));
      return true;
    }
  }
  return false;
}

std::string DelimitedParser::reason(const Read& field, std::string_view text) const {
  const DelimitedColumn& column = *field.column;
  const std::string is = column.name + " is " + (text.empty() ? "missing" : quoted(text));
  switch (column.kind) {
    case Kind::label:
      return is + (settings_->classes == 2
                       ? ", not 0 or 1"
                       : ", no whole number from 0 to " + std::to_string(settings_->classes - 1));
    case Kind::head:
      return is + ", not 0 or 1, nor empty, which is: not known";
    case Kind::target:
    case Kind::number:
      return is + ", no finite number";
    case Kind::weight:
      return is + ", no finite number from 0";
    default:
      return is + ", not " + column.encoder.expected();
  }
}

ParsedRows DelimitedParser::parse(std::string_view lines) const {
  ParsedRows rows;
  rows.block = RowBlock(layout_);
  if (lines.empty()) return rows;  // of a part that is a header alone
  if (settings_->quotes && lines.find('"') != std::string_view::npos) {
    parse_quoted(lines, rows);
  } else {
    parse_plain(lines, rows);
  }
  // Of a bad row that was the last.
  forget(rows.block, rows.block.rows());
  return rows;
}

void DelimitedParser::parse_plain(std::string_view lines, ParsedRows& rows) const {
  const auto ends = std::make_unique_for_overwrite<std::uint32_t[]>(lines.size() + 64);
  std::size_t count =
      scan_kernels(default_isa()).separators(lines.data(), lines.size(), separator_, ends.get());
  if (!lines.ends_with('\n')) ends[count++] = static_cast<std::uint32_t>(lines.size());
  const auto is_end = [&](std::size_t e) {
    return ends[e] == lines.size() || lines[ends[e]] == '\n';
  };
  RowBlock& block = rows.block;
  block.resize(count / fields_ + 1);
  std::size_t row = 0;
  std::uint32_t begin = 0;
  for (std::size_t e = 0; e < count;) {
    ++rows.lines;
    std::size_t field = 0;
    const std::size_t first = e;
    if (count - e >= fields_ && ends[e + fields_ - 1] == end_of_line(lines, begin)) {
      std::uint32_t& last = ends[e + fields_ - 1];
      const std::uint32_t end = last;
      if (end > begin && lines[end - 1] == '\r') --last;
      const bool whole = read_line(lines.data(), begin, ends.get() + e, block, row);
      last = end;
      if (whole) {
        ++row;
        begin = end + 1;
        e += fields_;
        continue;
      }
      forget(block, row);
    }
    bool bad = false, ended = false;
    for (; field < fields_ && !ended; ++field, ++e) {
      std::string_view text = lines.substr(begin, ends[e] - begin);
      begin = ends[e] + 1;
      ended = is_end(e);
      if (ended) text = without_return(text);
      if (ended && field + 1 < fields_) break;
      const Read& read_as = column_of_[field];
      if (bad || !read_as.column || read(read_as, text, block, row)) continue;
      bad = true;
      if (field + 1 == fields_ && !ended) continue;  // there are too many fields
      std::size_t last = e;
      while (!is_end(last)) ++last;
      if (last - first + 1 == fields_) rows.reject(rows.lines, row, reason(read_as, text));
    }
    if (ended && field == fields_ && !bad) {
      ++row;
      continue;
    }
    if (!ended) {
      while (!is_end(e)) ++e;
      begin = ends[e] + 1;
      ++e;
    } else if (field < fields_) {
      ++e;
    }
    const std::size_t there = e - first;
    const std::size_t line_begin = first == 0 ? 0 : ends[first - 1] + 1;
    const bool empty =
        there == 1 && without_return(lines.substr(line_begin, ends[first] - line_begin)).empty();
    if (!empty && there != fields_) rows.reject(rows.lines, row, wrong_number(there));
    forget(block, row);
  }
  block.resize(row);
}

void DelimitedParser::parse_quoted(std::string_view lines, ParsedRows& rows) const {
  RowBlock& block = rows.block;
  block.resize(static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n')) + 1);
  std::vector<std::string> fields;
  std::size_t row = 0;
  for (std::size_t at = 0; at < lines.size();) {
    ++rows.lines;
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = without_return(lines.substr(at, end - at));
    at = end + 1;
    if (line.empty()) continue;
    std::string why;
    if (!split_quoted(line, separator_, fields)) {
      why = "a quoted field does not end on its line, or before its separator";
    } else if (fields.size() != fields_) {
      why = wrong_number(fields.size());
    }
    for (std::size_t f = 0; f < fields_ && why.empty(); ++f) {
      if (column_of_[f].column && !read(column_of_[f], fields[f], block, row)) {
        why = reason(column_of_[f], fields[f]);
      }
    }
    if (why.empty()) {
      ++row;
      continue;
    }
    rows.reject(rows.lines, row, std::move(why));
    forget(block, row);
  }
  block.resize(row);
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string shown = "'";
  for (const char c : text.substr(0, 20)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 127) {
      shown.push_back(c);
    } else {
      shown.append("\\x").push_back(kDigits[byte >> 4]);
      shown.push_back(kDigits[byte & 15]);
    }
  }
  shown.push_back('\'');
  return shown;
}

RowLayout layout_of(const DelimitedSettings& settings) {
  RowLayout layout;
  layout.classes = settings.classes > 0;
  const auto heads = std::ranges::count(settings.columns, Kind::head, &DelimitedColumn::kind);
  layout.values = heads > 0 ? static_cast<std::size_t>(heads) : 1;
  for (const DelimitedColumn& column : settings.columns) {
    layout.numbers += column.kind == Kind::number;
    layout.weights |= column.kind == Kind::weight;
    if (column.kind == Kind::id || column.kind == Kind::ids) {
      layout.bags.push_back(column.kind == Kind::ids);
    }
  }
  return layout;
}

Delimited::Delimited(DelimitedSettings settings)
    : settings_(std::make_shared<const DelimitedSettings>(std::move(settings))),
      layout_(layout_of(*settings_)) {}

// The one that the first line has as many of as there are names, or has most of.
char Delimited::separator_of(std::string_view line) const {
  const std::size_t wanted = settings_->names.size() - 1;
  char best = settings_->separators.front();
  std::ptrdiff_t most = 0;
  for (const char candidate : settings_->separators) {
    const auto count = std::count(line.begin(), line.end(), candidate);
    if (static_cast<std::size_t>(count) == wanted) return candidate;
    if (count > most) best = candidate;
    most = std::max(most, count);
  }
  return best;
}

std::shared_ptr<const LineParser> Delimited::begin(std::string_view& lines) const {
  const DelimitedSettings& settings = *settings_;
  const std::string_view first = without_return(lines.substr(0, lines.find('\n')));
  const char separator = separator_of(first);
  std::vector<std::string> fields;
  const bool split = split_quoted(first, separator, fields);
  bool header = settings.header == DelimitedSettings::Header::present;
  if (settings.header == DelimitedSettings::Header::detected) {
    const std::string& name = settings.columns.front().name;
    header = std::find(fields.begin(), fields.end(), name) != fields.end();
  }
  if (!header) {
    const bool lacks = !settings.target.empty() && fields.size() + 1 == settings.names.size();
    fields = settings.names;
    if (lacks) std::erase(fields, settings.target);
  }
  if (header && !split) throw Error("line 1: a quoted name does not end on its line");
  std::vector<std::size_t> places;
  std::string lacking;
  for (const DelimitedColumn& column : settings.columns) {
    const auto found = std::find(fields.begin(), fields.end(), column.name);
    if (found == fields.end()) lacking += (lacking.empty() ? "" : ", ") + column.name;
    places.push_back(static_cast<std::size_t>(found - fields.begin()));
  }
  if (!lacking.empty()) throw Error("its header has no column " + lacking);
  for (const DelimitedColumn& column : settings.columns) {
    if (std::count(fields.begin(), fields.end(), column.name) > 1) {
      throw Error("its header has column " + column.name + " more than once");
    }
  }
  if (header) {
    const std::size_t newline = lines.find('\n');
    lines.remove_prefix(newline == std::string_view::npos ? lines.size() : newline + 1);
  }
  return std::make_shared<const DelimitedParser>(settings_, layout_, separator, fields.size(),
                                                 places);
}

}  // namespace leashed
