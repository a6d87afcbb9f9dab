// Lines of text as rows, against a plain reader, wherever the text is cut.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leashed/base/philox.h"
#include "leashed/data/delimited.h"
#include "leashed/data/eight_digits.h"
#include "leashed/data/parse_number.h"
#include "leashed/data/row_stream.h"

using namespace leashed;

namespace {

using Column = DelimitedColumn;

// So many bytes at a time, and then fewer.
class Pieces final : public ByteSource {
 public:
  Pieces(std::string_view text, std::size_t most) : text_(text), most_(most) {}
  std::size_t read(char* to, std::size_t most, const std::atomic<bool>&) override {
    const std::size_t count = std::min({most, most_, text_.size()});
    std::memcpy(to, text_.data(), count);
    text_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view text_;
  const std::size_t most_;
};

DelimitedSettings settings() {
  const IdEncoder hexadecimal{IdEncoder::Kind::hexadecimal, 0, 5, 0, 0, 77};
  const IdEncoder decimal{IdEncoder::Kind::decimal};
  return {{{"y", Column::Kind::label},
           {"n", Column::Kind::number, false, 0.5f},
           {"h", Column::Kind::id, false, {}, hexadecimal},
           {"s", Column::Kind::ids, false, {}, decimal, ' '}},
          ",",
          DelimitedSettings::Header::present,
          {}};
}

// A row as text, or what is wrong with a line.
struct Rows {
  std::vector<std::string> rows;
  std::vector<std::pair<std::uint64_t, std::string>> bad;
  std::uint64_t lines = 0;

  bool operator==(const Rows&) const = default;
};

std::string row_of(std::int32_t label, float number, std::uint64_t id,
                   const std::vector<std::uint64_t>& several) {
  std::string row = std::to_string(label);
  row.append(" ").append(std::to_string(number)).append(" ").append(std::to_string(id));
  for (const std::uint64_t one : several) row.append(" ").append(std::to_string(one));
  return row;
}

Rows read(std::string_view text, std::size_t part_bytes, std::size_t piece, std::size_t threads) {
  auto format = std::make_unique<const Delimited>(settings());
  const RowLayout layout = format->layout();
  const auto open = [=](std::size_t, const std::atomic<bool>&) {
    return std::make_unique<Pieces>(text, piece);
  };
  RowStream stream(std::make_unique<TextOrigin>(std::vector<std::string>{"f"}, open,
                                                std::move(format), part_bytes, false),
                   layout, {.threads = threads, .skip_bad = true});
  stream.start();
  RowBlock block(layout);
  double waited = 0;
  Rows all;
  try {
    stream.take(0, 1000, block, waited);
  } catch (const std::exception& error) {
    all.bad.emplace_back(0, error.what());
  }
  for (std::size_t i = 0; i < block.rows(); ++i) {
    const RowBlock::Bag& bag = block.bags[0];
    all.rows.push_back(
        row_of(block.labels[i], block.x[i], block.ids[i],
               {bag.ids.begin() + bag.offsets[i], bag.ids.begin() + bag.offsets[i + 1]}));
  }
  const ReadCounts counts = stream.counts();
  for (const ReadCounts::Bad& bad : counts.first_bad) all.bad.emplace_back(bad.number, bad.reason);
  all.lines = counts.lines;
  return all;
}

// The fields of a line, byte by byte; false where its quotes are not right.
bool split(std::string_view line, std::vector<std::string>& fields) {
  fields.assign(1, "");
  bool within = false, behind = false, begins = true;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (within) {
      if (c != '"') {
        fields.back() += c;
      } else if (i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += line[++i];
      } else {
        within = false;
        behind = true;
      }
    } else if (c == ',') {
      fields.emplace_back();
      begins = true;
      behind = false;
      continue;
    } else if (behind) {
      return false;
    } else if (c == '"' && begins) {
      within = true;
    } else {
      fields.back() += c;
    }
    begins = false;
  }
  return !within;
}

// Of fields y, n, h, s; which is the first that is wrong, 4: none.
std::size_t wrong_of(const std::vector<std::string>& fields, std::string& row) {
  const std::vector<Column> columns = settings().columns;
  if (fields[0] != "0" && fields[0] != "1") return 0;
  double number = 0.5;
  if (!fields[1].empty() && !parse_number(fields[1], number)) return 1;
  if (!std::isfinite(static_cast<float>(number))) return 1;
  const auto id = columns[2].encoder(fields[2]);
  if (!id) return 2;
  std::vector<std::uint64_t> several;
  std::string one;
  for (std::size_t i = 0; !fields[3].empty() && i <= fields[3].size(); ++i) {
    if (i < fields[3].size() && fields[3][i] != ' ') {
      one += fields[3][i];
      continue;
    }
    const auto found = columns[3].encoder(one);
    if (!found) return 3;
    several.push_back(*found);
    one.clear();
  }
  row = row_of(fields[0] == "1", static_cast<float>(number), *id, several);
  return 4;
}

Rows plain(std::string_view text) {
  Rows all;
  std::vector<std::string> fields;
  while (!text.empty()) {
    ++all.lines;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (all.lines == 1 || line.empty()) continue;  // the header
    std::string row;
    if (!split(line, fields)) {
      all.bad.emplace_back(all.lines, "a quoted");
    } else if (fields.size() != 4) {
      all.bad.emplace_back(all.lines, std::to_string(fields.size()) + " fields");
    } else if (const std::size_t wrong = wrong_of(fields, row); wrong < 4) {
      all.bad.emplace_back(all.lines, settings().columns[wrong].name + " is");
    } else {
      all.rows.push_back(row);
    }
  }
  if (all.rows.empty()) all.bad.insert(all.bad.begin(), {0, "f: there"});
  return all;
}

// As far as the plain reader tells it.
void shorten(Rows& rows) {
  for (auto& [number, reason] : rows.bad) {
    reason.resize(std::min(reason.find(' ', reason.find(' ') + 1), reason.size()));
  }
}

std::string drawn(std::uint64_t seed) {
  constexpr std::string_view kLines[] = {"1,2.5,ff,3 4",
                                         "0,,,",
                                         "1,1e3,0123abcd,-1\r",
                                         "\"0\",\"1\",\"2\",\"3 4\"",
                                         "1,\"2\"\"\",f,7",
                                         "0,x,1,2",
                                         "1,2,3",
                                         "",
                                         "0,1,2,3,4",
                                         "1,2,\"3,4\"",
                                         "1,\"2\n3\",4,5",
                                         "\r",
                                         "1,123456789.,0,8",
                                         "2,1,1,1",
                                         "1,1,gg,1",
                                         "0,1,1,1  2"};
  std::string text = "y,n,h,s\n";
  std::uint64_t i = 0;
  const auto draw = [&](std::size_t below) { return philox(seed, 1, i++)[0] % below; };
  for (std::size_t lines = draw(12); lines > 0; --lines) {
    text += kLines[draw(std::size(kLines))];
    text += '\n';
  }
  if (draw(3) == 0) text.pop_back();
  const std::size_t header = std::min<std::size_t>(8, text.size());
  for (std::size_t changes = draw(4); changes > 0 && text.size() > header; --changes) {
    const std::size_t at = header + draw(text.size() - header);
    text[at] = "\",\n\r\0 19a\xff"[draw(10)];
  }
  return text;
}

}  // namespace

TEST_CASE("lines are read as a plain reader reads them, wherever they are cut") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = drawn(seed);
    CAPTURE(text);
    const Rows expected = plain(text);
    Rows whole = read(text, 1 << 16, 1 << 16, 1);
    for (const std::size_t part : {std::size_t{1}, std::size_t{9}, 1 + seed % 60}) {
      const Rows cut = read(text, part, 1 + seed % 7, 1 + seed % 3);
      // (Lines with and without quotes are read by different code, by part.)
      CHECK(cut == whole);
    }
    shorten(whole);
    CHECK(whole.rows == expected.rows);
    CHECK(whole.bad == expected.bad);
    CHECK(whole.lines == expected.lines);
  }
}

TEST_CASE("digits are read eight at once as one by one") {
  const std::string_view of = "0123456789abcdefABCDEF/:@G`g\x80\xff\t";
  const auto place = [&](char c) { return std::string_view("0123456789abcdef").find(c | 0x20); };
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    const auto words = philox(1, 2, i);
    const std::size_t size = words[0] % 10;
    // Of digits alone, of hexadecimal digits alone, or of everything.
    const std::size_t among = std::array{std::size_t{10}, std::size_t{22}, of.size()}[words[1] % 3];
    std::string text;
    for (std::size_t j = 0; j < 16; ++j) {
      text += of[(philox(3, i, j)[0] >> 8) % (j < size ? among : of.size())];
    }
    bool decimal = size >= 1 && size <= 8, hexadecimal = true;
    std::uint64_t by_ten = 0, by_sixteen = 0;
    for (std::size_t j = 0; j < 8; ++j) {
      const char c = text[j];
      const std::size_t digit = c >= '0' && c <= '9' ? static_cast<std::size_t>(c - '0')
                                : c >= 'A'           ? place(c)
                                                     : std::string::npos;
      hexadecimal &= digit < 16;
      by_sixteen = by_sixteen * 16 + digit;
      if (j >= size) continue;
      decimal &= digit < 10;
      by_ten = by_ten * 10 + digit;
    }
    CAPTURE(text);
    CAPTURE(size);
    std::uint64_t number = 0;
    REQUIRE(decimal_digits(text.data(), size, number) == decimal);
    if (decimal) REQUIRE(number == by_ten);
    REQUIRE(hexadecimal_digits(text.data(), number) == hexadecimal);
    if (hexadecimal) REQUIRE(number == by_sixteen);
  }
}

// A quote makes a part's lines be read field by field.
TEST_CASE("lines without quotes are read as those beside one with quotes") {
  const IdEncoder exact{IdEncoder::Kind::hexadecimal, 8, 5, 0, 0, 77};
  const IdEncoder any{IdEncoder::Kind::hexadecimal, 0, 1};
  const IdEncoder hashed{IdEncoder::Kind::hash, 0, 0, 3, 1000};
  const IdEncoder decimal{IdEncoder::Kind::decimal, 0, 0, 0, 0, 9};
  DelimitedSettings settings{{{"a", Column::Kind::number, true, 0.5f},
                              {"b", Column::Kind::number, false, 0.5f},
                              {"c", Column::Kind::number, true, {}},
                              {"d", Column::Kind::id, false, {}, exact},
                              {"e", Column::Kind::id, false, {}, any},
                              {"f", Column::Kind::id, false, {}, hashed},
                              {"y", Column::Kind::label},
                              {"s", Column::Kind::ids, false, {}, decimal, ' '},
                              {"g", Column::Kind::number, true, 0.f}},
                             ",",
                             DelimitedSettings::Header::none,
                             {"a", "b", "c", "d", "e", "f", "-", "y", "s", "g"}};
  const Delimited format(settings);
  const std::string quoted = "1,1,1,00000000,0,x,-,0,\"1\",1\n";
  const std::vector<std::string> numbers = {"",   "0",         "7",        "16383", "16384", "-1",
                                            "+5", "123456789", "12345678", "1.5",   "x",     "1e3"};
  const std::vector<std::string> ids = {"",        "00000000",  "ffFF09aZ", "deadBEEF",
                                        "deadbee", "123456789", "abcdef01", "fedcba98"};
  std::size_t good = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    std::uint64_t at = 0;
    const auto draw = [&](const std::vector<std::string>& from, std::size_t mostly) {
      const auto words = philox(7, i, at++);
      return from[words[0] % (words[1] % 20 ? mostly : from.size())];
    };
    std::string lines;
    for (std::uint64_t n = 1 + i % 3; n > 0; --n) {
      lines += draw(numbers, 5) + "," + draw(numbers, 5) + "," + draw({"3", "99999999", ""}, 2) +
               "," + draw({"0abcdef9", "", ids[2], ids[4]}, 2) + "," + draw(ids, 2) + "," +
               draw(ids, 8) + ",-," + draw({"0", "1", "", "2"}, 2) + "," +
               draw({"", "4", "4 5", "4  x"}, 3) + "," + draw(numbers, 5) +
               draw({"", "\r", ",1", "\r\r"}, 2) + "\n";
    }
    CAPTURE(lines);
    const std::string padding(64, '\0');
    const std::string first = lines + padding, second = lines + quoted + padding;
    std::string_view plain = std::string_view(first).substr(0, lines.size());
    std::string_view beside = std::string_view(second).substr(0, lines.size() + quoted.size());
    const ParsedRows rows = format.begin(plain)->parse(plain);
    ParsedRows others = format.begin(beside)->parse(beside);
    others.block.resize(others.block.rows() - 1);
    RowBlock::Bag& bag = others.block.bags[0];
    bag.ids.pop_back();
    bag.offsets.pop_back();
    REQUIRE(rows.block.rows() == others.block.rows());
    good += rows.block.rows();
    REQUIRE(rows.block.x == others.block.x);
    REQUIRE(rows.block.ids == others.block.ids);
    REQUIRE(rows.block.labels == others.block.labels);
    REQUIRE(rows.block.bags[0].ids == bag.ids);
    REQUIRE(rows.block.bags[0].offsets == bag.offsets);
    REQUIRE(rows.bad == others.bad);
    for (std::size_t b = 0; b < rows.first_bad.size(); ++b) {
      REQUIRE(rows.first_bad[b].number == others.first_bad[b].number);
      REQUIRE(rows.first_bad[b].before == others.first_bad[b].before);
      REQUIRE(rows.first_bad[b].reason == others.first_bad[b].reason);
    }
  }
  CHECK(good > 10'000);
}

TEST_CASE("a file is cut at each byte, and begins with a mark or empty lines") {
  const std::string text = "\xef\xbb\xbf\r\n\ny,n,h,s\r\n1,2,3,4 5\r\n\r\n0,\"1\",2,\r\nbad\n1,,,9";
  const Rows whole = read(text, 1 << 16, 1 << 16, 1);
  CHECK(whole.rows == std::vector<std::string>{row_of(1, 2, 8, {4, 5}), row_of(0, 1, 7, {}),
                                               row_of(1, 0.5, 77, {9})});
  CHECK(whole.lines == 8);
  REQUIRE(whole.bad.size() == 1);
  CHECK(whole.bad[0].first == 7);
  for (std::size_t part = 1; part < text.size() + 2; ++part) {
    for (const std::size_t threads : {1, 3}) CHECK(read(text, part, part, threads) == whole);
  }
}

TEST_CASE("numbers beyond the range of doubles are 0 or none, by which side they are on") {
  const std::string zeros(400, '0');
  for (const auto& [text, small] :
       std::vector<std::pair<std::string, bool>>{{"1e-400", true},
                                                 {"-1E-400", true},
                                                 {"0." + zeros + "1", true},
                                                 {"1e-99999999999999999999", true},
                                                 {"1" + zeros + "e-1", false},
                                                 {"1" + zeros + "e-900", true},
                                                 {"0." + zeros + "1e900", false},
                                                 {"1" + zeros, false},
                                                 {"1e400", false},
                                                 {"1e+400", false},
                                                 {"-1e99999999999999999999", false}}) {
    CAPTURE(text);
    double value = 1;
    CHECK(parse_number(text, value) == small);
    if (small) CHECK(value == 0);
    if (small) CHECK(std::signbit(value) == (text.front() == '-'));
  }
  double value = 0;
  CHECK(parse_number("1" + zeros + "e-400", value));
  CHECK(value == 1);
}
