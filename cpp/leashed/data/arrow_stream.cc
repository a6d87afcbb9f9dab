#include "leashed/data/arrow_stream.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/data/parse_number.h"

namespace leashed {
namespace {

using Kind = DelimitedColumn::Kind;

constexpr std::int64_t kSliceRows = 8192;

// Why a stream has failed. Of what Python has raised pyarrow tells the calls behind it too.
std::string reason_of(ArrowArrayStream& stream, const char* otherwise) {
  const char* const told = stream.get_last_error(&stream);
  if (!told) return otherwise;
  std::string_view why = told;
  constexpr std::string_view kKind = "Invalid: ";
  if (why.starts_with(kKind)) why.remove_prefix(kKind.size());
  return std::string(why.substr(0, why.find(". Detail: Python exception: ")));
}
constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers below are doubles

// One value of a column. What its array says may lie outside of the memory that there is: then it
// is `lost`, and so is a place that a dictionary does not have, which is `beyond`.
struct Cell {
  enum class Kind { null, whole, unsigned_whole, real, text, beyond, lost } kind = Kind::null;
  std::uint64_t bits = 0;  // of a whole number, or a place
  double real = 0;
  std::string_view text = {};

  std::string shown() const {
    switch (kind) {
      case Kind::null:
        return "missing";
      case Kind::whole:
        return std::to_string(static_cast<std::int64_t>(bits));
      case Kind::unsigned_whole:
        return std::to_string(bits);
      case Kind::real:
        return std::to_string(real);
      case Kind::text:
        return quoted(text);
      case Kind::beyond:
        return "at place " + std::to_string(static_cast<std::int64_t>(bits)) +
               " of its dictionary, which does not have it";
      case Kind::lost:
        return "text outside of its memory";
    }
    return "?";
  }
  bool is_there() const { return kind != Kind::beyond && kind != Kind::lost; }
  double as_number() const {
    switch (kind) {
      case Kind::whole:
        return static_cast<double>(static_cast<std::int64_t>(bits));
      case Kind::unsigned_whole:
        return static_cast<double>(bits);
      case Kind::real:
        return real;
      default:
        return std::numeric_limits<double>::quiet_NaN();
    }
  }
};

template <class T>
T at(const void* buffer, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(buffer) + i * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

bool bit(const void* buffer, std::int64_t i) {
  return at<std::uint8_t>(buffer, i / 8) >> (i % 8) & 1;
}

// Half a float's bits as a number.
double half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  double value = std::ldexp(fraction, -24);
  if (exponent == 31) {
    value = fraction ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  } else if (exponent > 0) {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return bits >> 15 ? -value : value;
}

// Of a column that has nothing but nulls there is no memory.
bool is_null(const ArrowSchema& schema, const ArrowArray& array, std::int64_t i) {
  if (schema.format[0] == 'n') return true;
  return array.null_count != 0 && array.buffers[0] && !bit(array.buffers[0], i + array.offset);
}

// Types of one value, as this reads them: whole numbers, and n, which has nothing but nulls; real
// ones; decimals; text.
constexpr std::string_view kWhole = "nbcCsSiIlL", kReal = "efg";
// Digits behind the point, and bytes of a value; nothing where it is no decimal that is read.
struct Decimal {
  int scale = 0, bytes = 16;
};
std::optional<Decimal> decimal_of(const char* format) {
  int precision = 0, bits = 128;
  Decimal decimal;
  const int told = std::sscanf(format, "d:%d,%d,%d", &precision, &decimal.scale, &bits);
  if (told < 2 || (bits != 32 && bits != 64 && bits != 128)) return {};
  decimal.bytes = bits / 8;
  return decimal;
}
double decimal_at(const Decimal& decimal, const void* values, std::int64_t k) {
  double whole = 0;
  if (decimal.bytes == 4) {
    whole = at<std::int32_t>(values, k);
  } else if (decimal.bytes == 8) {
    whole = static_cast<double>(at<std::int64_t>(values, k));
  } else {
    __extension__ typedef __int128 Whole;
    whole = static_cast<double>(at<Whole>(values, k));
  }
  return whole / std::pow(10.0, decimal.scale);
}
bool is_text(std::string_view format) {
  return format == "u" || format == "U" || format == "z" || format == "Z" || format == "vu" ||
         format == "vz";
}
bool is_list_view(std::string_view format) { return format == "+vl" || format == "+vL"; }
bool is_list(std::string_view format) {
  return format == "+l" || format == "+L" || format.starts_with("+w:") || is_list_view(format);
}
bool is_one_of(std::string_view format, std::string_view types) {
  return format.size() == 1 && types.find(format) != std::string_view::npos;
}

// Element k of what has 64 bits an element, or 32.
std::int64_t whole_at(const void* buffer, bool large, std::int64_t k) {
  return large ? at<std::int64_t>(buffer, k) : std::int64_t{at<std::int32_t>(buffer, k)};
}

// Nothing where it lies outside of its buffer.
std::optional<std::string_view> text_at(std::string_view format, const ArrowArray& array,
                                        std::int64_t i) {
  if (format.size() == 2) {  // a view: 4 bytes of length, then the text, or where it lies
    const char* const view = static_cast<const char*>(array.buffers[1]) + 16 * i;
    const std::int64_t length = at<std::int32_t>(view, 0);
    if (length < 0) return {};
    if (length <= 12) return std::string_view(view + 4, static_cast<std::size_t>(length));
    const std::int64_t buffer = at<std::int32_t>(view, 2), begin = at<std::int32_t>(view, 3);
    // Their sizes are in the last.
    if (buffer < 0 || buffer >= array.n_buffers - 3 || begin < 0 ||
        begin + length > at<std::int64_t>(array.buffers[array.n_buffers - 1], buffer)) {
      return {};
    }
    return std::string_view(static_cast<const char*>(array.buffers[2 + buffer]) + begin,
                            static_cast<std::size_t>(length));
  }
  const bool large = format == "U" || format == "Z";
  const void* const offsets = array.buffers[1];
  const std::int64_t begin = whole_at(offsets, large, i), end = whole_at(offsets, large, i + 1);
  if (begin < 0 || end < begin || end > whole_at(offsets, large, array.offset + array.length)) {
    return {};
  }
  return std::string_view(static_cast<const char*>(array.buffers[2]) + begin,
                          static_cast<std::size_t>(end - begin));
}

// The value at row i, counted from the array's offset.
Cell cell_at(const ArrowSchema& schema, const ArrowArray& array, std::int64_t i) {
  if (is_null(schema, array, i)) return {};
  const std::string_view format = schema.format;
  const std::int64_t k = i + array.offset;
  const void* const values = array.n_buffers > 1 ? array.buffers[1] : nullptr;
  const auto whole = [](std::int64_t value) {
    return Cell{Cell::Kind::whole, static_cast<std::uint64_t>(value)};
  };
  const auto natural = [](std::uint64_t value) { return Cell{Cell::Kind::unsigned_whole, value}; };
  Cell cell;
  switch (format.front()) {
    case 'b':
      cell = natural(bit(values, k));
      break;
    case 'c':
      cell = whole(at<std::int8_t>(values, k));
      break;
    case 'C':
      cell = natural(at<std::uint8_t>(values, k));
      break;
    case 's':
      cell = whole(at<std::int16_t>(values, k));
      break;
    case 'S':
      cell = natural(at<std::uint16_t>(values, k));
      break;
    case 'i':
      cell = whole(at<std::int32_t>(values, k));
      break;
    case 'I':
      cell = natural(at<std::uint32_t>(values, k));
      break;
    case 'l':
      cell = whole(at<std::int64_t>(values, k));
      break;
    case 'L':
      cell = natural(at<std::uint64_t>(values, k));
      break;
    case 'e':
      return {Cell::Kind::real, 0, half(at<std::uint16_t>(values, k))};
    case 'f':
      return {Cell::Kind::real, 0, double{at<float>(values, k)}};
    case 'g':
      return {Cell::Kind::real, 0, at<double>(values, k)};
    case 'd':
      return {Cell::Kind::real, 0, decimal_at(decimal_of(schema.format).value(), values, k)};
    default: {
      const auto text = text_at(format, array, k);
      return text ? Cell{Cell::Kind::text, 0, 0, *text} : Cell{Cell::Kind::lost};
    }
  }
  if (!schema.dictionary) return cell;
  // A negative place is a large one.
  if (cell.bits >= static_cast<std::uint64_t>(array.dictionary->length)) {
    return {Cell::Kind::beyond, cell.bits};
  }
  return cell_at(*schema.dictionary, *array.dictionary, static_cast<std::int64_t>(cell.bits));
}

// Nothing where it is none. A real number that is whole is that number, and NaN is missing: so
// libraries keep columns of whole numbers of which some are missing.
std::optional<std::uint64_t> id_of(const IdEncoder& encoder, Cell cell) {
  if (cell.kind == Cell::Kind::real) {
    if (std::isnan(cell.real)) return encoder("");
    if (!(std::abs(cell.real) < kExact) || cell.real != std::trunc(cell.real)) return std::nullopt;
    cell = {Cell::Kind::whole, static_cast<std::uint64_t>(static_cast<std::int64_t>(cell.real))};
  }
  const bool is_number = cell.kind == Cell::Kind::whole || cell.kind == Cell::Kind::unsigned_whole;
  switch (cell.kind) {
    case Cell::Kind::null:
      return encoder("");
    case Cell::Kind::text:
      return encoder(cell.text);
    case Cell::Kind::real:
    case Cell::Kind::beyond:
    case Cell::Kind::lost:
      return std::nullopt;
    default:
      break;
  }
  if (is_number &&
      (encoder.kind == IdEncoder::Kind::decimal || encoder.kind == IdEncoder::Kind::hexadecimal)) {
    return cell.bits + encoder.offset;
  }
  char digits[24];
  const auto end =
      cell.kind == Cell::Kind::whole
          ? std::to_chars(digits, digits + sizeof digits, static_cast<std::int64_t>(cell.bits)).ptr
          : std::to_chars(digits, digits + sizeof digits, cell.bits).ptr;
  return encoder({digits, static_cast<std::size_t>(end - digits)});
}

// The type of one value of a column that may be encoded by a dictionary.
std::string_view plain_format(const ArrowSchema& schema) {
  return schema.dictionary ? schema.dictionary->format : schema.format;
}

bool is_word(const ArrowSchema& schema) {
  return is_one_of(plain_format(schema), kWhole) || is_text(plain_format(schema));
}
bool is_id(const ArrowSchema& schema) { return is_word(schema) || is_one_of(schema.format, "fg"); }
bool is_list_of_ids(const ArrowSchema& schema) {
  return is_list(schema.format) && is_word(*schema.children[0]);
}

bool suits(const DelimitedColumn& column, const ArrowSchema& schema) {
  switch (column.kind) {
    case Kind::id:
      return is_id(schema);
    case Kind::ids:
      return is_list_of_ids(schema) || schema.format[0] == 'n';
    default:
      return is_one_of(plain_format(schema), kWhole) || is_one_of(plain_format(schema), kReal) ||
             decimal_of(plain_format(schema).data());
  }
}

// A type as libraries call it, of which Arrow has letters.
std::string type_name(const ArrowSchema& schema) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"n", "null"},
      {"b", "bool"},
      {"c", "int8"},
      {"C", "uint8"},
      {"s", "int16"},
      {"S", "uint16"},
      {"i", "int32"},
      {"I", "uint32"},
      {"l", "int64"},
      {"L", "uint64"},
      {"e", "float16"},
      {"f", "float32"},
      {"g", "float64"},
      {"z", "binary"},
      {"Z", "large_binary"},
      {"vz", "binary_view"},
      {"u", "string"},
      {"U", "large_string"},
      {"vu", "string_view"},
      {"tdD", "date32"},
      {"tdm", "date64"},
      {"tts", "time32[s]"},
      {"ttm", "time32[ms]"},
      {"ttu", "time64[us]"},
      {"ttn", "time64[ns]"},
      {"tDs", "duration[s]"},
      {"tDm", "duration[ms]"},
      {"tDu", "duration[us]"},
      {"tDn", "duration[ns]"},
      {"tiM", "month_interval"},
      {"tiD", "day_time_interval"},
      {"tin", "month_day_nano_interval"},
      {"+s", "struct"},
      {"+m", "map"},
      {"+r", "run_end_encoded"}};
  constexpr std::pair<std::string_view, std::string_view> kBegins[] = {
      {"d:", "decimal"},         {"w:", "fixed_size_binary"}, {"+ud:", "dense_union"},
      {"+us:", "sparse_union"},  {"tss:", "timestamp[s]"},    {"tsm:", "timestamp[ms]"},
      {"tsu:", "timestamp[us]"}, {"tsn:", "timestamp[ns]"}};
  if (schema.dictionary) return "dictionary of " + type_name(*schema.dictionary);
  const std::string_view format = schema.format;
  if (is_list(format)) return "list of " + type_name(*schema.children[0]);
  for (const auto& [letters, name] : kNames) {
    if (format == letters) return std::string(name);
  }
  for (const auto& [letters, name] : kBegins) {
    if (format.starts_with(letters)) return std::string(name);
  }
  return "'" + std::string(format) + "'";
}

// What a column of that type cannot become, and what to do.
std::string refusal(const DelimitedColumn& column, const ArrowSchema& schema) {
  std::string to = "whole or real numbers", with;
  if (column.kind == Kind::id) {
    to = "whole numbers or text";
    if (is_list_of_ids(schema)) with = "give its column between=, for any number of ids a row, or ";
  } else if (column.kind == Kind::ids) {
    to = "a list of whole numbers or of text";
    if (is_id(schema)) with = "give its column no between=, for one id a row, or ";
  }
  return "column " + column.name + " is of Arrow's type " + type_name(schema) +
         ", which cannot become what the schema says; " + with + "cast it to " + to;
}

// Rows that are bad, and the first reason of each.
using Reasons = std::map<std::int64_t, std::string>;

// Values of rows [begin, begin + rows) of one column.
class ColumnReader {
 public:
  ColumnReader(const DelimitedColumn& column, const ArrowSchema& schema, const ArrowArray& array,
               std::int64_t begin, std::int64_t rows, std::int32_t classes, Reasons& bad)
      : column_(column),
        schema_(schema),
        array_(array),
        begin_(begin),
        rows_(rows),
        classes_(classes),
        bad_(bad) {}

  void numbers(float* to, std::size_t stride) {
    each([&](std::int64_t i, const Cell& cell) {
      float& value = to[static_cast<std::size_t>(i) * stride];
      const double x = cell.as_number();
      const bool nan = cell.kind == Cell::Kind::real && std::isnan(x);
      if ((cell.kind == Cell::Kind::null || nan) && column_.missing) {
        value = *column_.missing;
        return;
      }
      value = column_.log ? static_cast<float>(std::log1p(x > 0 ? x : 0)) : static_cast<float>(x);
      if (!std::isfinite(x) || !std::isfinite(value)) reject(i, cell, ", no finite number");
    });
  }
  void weights(float* to) {
    each([&](std::int64_t i, const Cell& cell) {
      to[i] = static_cast<float>(cell.as_number());
      if (!std::isfinite(to[i]) || to[i] < 0) reject(i, cell, ", no finite number from 0");
    });
  }
  void labels(std::int32_t* to) {
    each([&](std::int64_t i, const Cell& cell) {
      const double x = cell.as_number();
      if (is_label(x, classes_)) {
        to[i] = static_cast<std::int32_t>(x);
      } else {
        reject(i, cell, ", no whole number from 0 to " + std::to_string(classes_ - 1));
      }
    });
  }
  void heads(float* to, std::size_t stride) {
    each([&](std::int64_t i, const Cell& cell) {
      const double x = cell.as_number();
      const bool nan = cell.kind == Cell::Kind::real && std::isnan(x);
      const bool known = cell.kind != Cell::Kind::null && !nan;
      to[static_cast<std::size_t>(i) * stride] = known ? static_cast<float>(x) : std::nanf("");
      if (known && !is_label(x, 2)) reject(i, cell, ", not 0 or 1");
    });
  }
  void ids(std::uint64_t* to, std::size_t stride) {
    each([&](std::int64_t i, const Cell& cell) {
      const auto id = id_of(column_.encoder, cell);
      if (!id) return reject(i, cell, ", not " + column_.encoder.expected());
      to[static_cast<std::size_t>(i) * stride] = *id;
    });
  }
  void lists(RowBlock::Bag& to) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      if (!is_null(schema_, array_, begin_ + i)) list(i, to);
      to.offsets.push_back(static_cast<std::int64_t>(to.ids.size()));
    }
  }

 private:
  void list(std::int64_t i, RowBlock::Bag& to) {
    const std::string_view format = schema_.format;
    const bool large = format.back() == 'L';
    const std::int64_t row = begin_ + i + array_.offset;
    std::int64_t begin = 0, size = 0;
    if (format[1] == 'w') {
      size = std::atoll(schema_.format + 3);
      begin = row * size;
    } else {
      begin = whole_at(array_.buffers[1], large, row);
      size = is_list_view(format) ? whole_at(array_.buffers[2], large, row)
                                  : whole_at(array_.buffers[1], large, row + 1) - begin;
    }
    const ArrowArray& values = *array_.children[0];
    if (begin < 0 || size < 0 || begin > values.length || size > values.length - begin) {
      bad_.emplace(i, column_.name + " is a list outside of its values");
      return;
    }
    for (std::int64_t k = begin; k < begin + size; ++k) {
      const Cell cell = cell_at(*schema_.children[0], values, k);
      const auto id = id_of(column_.encoder, cell);
      if (id) {
        to.ids.push_back(*id);
      } else {
        reject(i, cell, ", not " + column_.encoder.expected());
      }
    }
  }
  template <class F>
  void each(const F& f) {
    for (std::int64_t i = 0; i < rows_; ++i) f(i, cell_at(schema_, array_, begin_ + i));
  }
  void reject(std::int64_t i, const Cell& cell, const std::string& why) {
    bad_.emplace(i, column_.name + " is " + cell.shown() + (cell.is_there() ? why : ""));
  }

  const DelimitedColumn& column_;
  const ArrowSchema& schema_;
  const ArrowArray& array_;
  const std::int64_t begin_, rows_;
  const std::int32_t classes_;
  Reasons& bad_;
};

}  // namespace

struct ArrowOrigin::Slice final : RowOrigin::Part {
  std::shared_ptr<const Columns> columns;
  std::shared_ptr<const Released<ArrowArray>> batch;
  std::int64_t begin = 0, rows = 0;

  ParsedRows parse() const override {
    const DelimitedSettings& settings = columns->settings;
    const ArrowArray& array = *batch->get();
    RowBlock block(columns->layout);
    block.resize(static_cast<std::size_t>(rows));
    const std::size_t numbers = columns->layout.numbers, ids = columns->layout.single_ids();
    Reasons bad;
    for (std::int64_t i = 0; i < rows; ++i) {
      if (is_null(*columns->schema.get(), array, begin + i)) bad.emplace(i, "the row is null");
    }
    std::size_t number = 0, single = 0, bag = 0, head = 0;
    for (std::size_t c = 0; c < settings.columns.size(); ++c) {
      const DelimitedColumn& column = settings.columns[c];
      const std::size_t place = columns->places[c];
      ColumnReader reader(column, *columns->schema.get()->children[place], *array.children[place],
                          begin + array.offset, rows, settings.classes, bad);
      switch (column.kind) {
        case Kind::label:
          reader.labels(block.labels.data());
          break;
        case Kind::head:
          reader.heads(block.values.data() + head++, columns->layout.values);
          break;
        case Kind::target:
          reader.numbers(block.values.data(), 1);
          break;
        case Kind::weight:
          reader.weights(block.weights.data());
          break;
        case Kind::number:
          reader.numbers(block.x.data() + number++, numbers);
          break;
        case Kind::id:
          reader.ids(block.ids.data() + single++, ids);
          break;
        case Kind::ids:
          reader.lists(block.bags[bag++]);
          break;
      }
    }
    ParsedRows parsed;
    parsed.lines = static_cast<std::uint64_t>(rows);
    if (bad.empty()) {
      parsed.block = std::move(block);
      return parsed;
    }
    parsed.block = RowBlock(columns->layout);
    std::size_t from = 0;
    for (auto& [row, reason] : bad) {
      const auto end = static_cast<std::size_t>(row);
      parsed.block.append(block, from, end);
      parsed.reject(static_cast<std::uint64_t>(row) + 1, parsed.block.rows(), std::move(reason));
      from = end + 1;
    }
    parsed.block.append(block, from, static_cast<std::size_t>(rows));
    return parsed;
  }
};

ArrowOrigin::ArrowOrigin(std::string name, Open open, const DelimitedSettings& settings, bool again)
    : names_({std::move(name)}), open_(std::move(open)), settings_(settings), again_(again) {
  open_again();
}

void ArrowOrigin::open_again() {
  stream_ = open_();
  auto columns = std::make_shared<Columns>();
  columns->settings = settings_;
  columns->layout = layout_of(settings_);
  ArrowArrayStream* const stream = stream_.get();
  if (stream->get_schema(stream, columns->schema.get()) != 0) {
    throw Error(names_[0] + ": " + reason_of(*stream, "it has no schema"));
  }
  const ArrowSchema& schema = *columns->schema.get();
  if (std::string_view(schema.format) != "+s") throw Error(names_[0] + ": it has no columns");
  for (const DelimitedColumn& column : settings_.columns) {
    const auto find = [&](std::int64_t place) {  // a name may be null
      for (; place < schema.n_children; ++place) {
        const char* const name = schema.children[place]->name;
        if (column.name == (name ? name : "")) break;
      }
      return place;
    };
    const std::int64_t place = find(0);
    if (place == schema.n_children) throw Error(names_[0] + ": it has no column " + column.name);
    if (find(place + 1) != schema.n_children) {
      throw Error(names_[0] + ": it has column " + column.name + " more than once");
    }
    const ArrowSchema& found = *schema.children[place];
    if (!suits(column, found)) {
      throw Error(names_[0] + ": " + refusal(column, found));
    }
    columns->places.push_back(static_cast<std::size_t>(place));
  }
  columns_ = std::move(columns);
  begins_ = true;
}

// That every column which is read has the rows of the batch.
void ArrowOrigin::check(const ArrowArray& batch) const {
  for (const std::size_t place : columns_->places) {
    if (static_cast<std::int64_t>(place) >= batch.n_children ||
        batch.children[place]->length < batch.offset + batch.length) {
      throw Error(names_[0] + ": a batch of it has columns that lack some of its rows");
    }
  }
}

std::unique_ptr<RowOrigin::Part> ArrowOrigin::next(const std::atomic<bool>& stop) {
  // Relaxed: a hint to end soon.
  while (!batch_ || next_row_ == batch_->get()->length) {
    if (stop.load(std::memory_order_relaxed)) return nullptr;
    Released<ArrowArray> batch;
    ArrowArrayStream* const stream = stream_.get();
    if (stream->get_next(stream, batch.get()) != 0) {
      throw Error(names_[0] + ": " + reason_of(*stream, "it could not be read"));
    }
    batch_.reset();
    if (!batch) return nullptr;
    check(*batch.get());
    batch_ = std::make_shared<const Released<ArrowArray>>(std::move(batch));
    next_row_ = 0;
  }
  auto slice = std::make_unique<Slice>();
  slice->columns = columns_;
  slice->batch = batch_;
  slice->begin = next_row_;
  slice->rows = std::min(kSliceRows, batch_->get()->length - next_row_);
  slice->begins_file = std::exchange(begins_, false);
  next_row_ += slice->rows;
  return slice;
}

bool ArrowOrigin::rewind() {
  if (!again_) return false;
  open_again();
  return true;
}

}  // namespace leashed
