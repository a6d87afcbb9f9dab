// The log of a mode's server: what is appended is read again, from any position on, and what
// nobody has written is refused.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "asked.h"
#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"
#include "leashed/server/event_log.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

using Kind = Event::Kind;

constexpr auto kNoKind = static_cast<Kind>(7);  // as a note is read that is no event

LogLine drawn(std::mt19937& random, std::int64_t& ns) {
  const auto upto = [&](std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random);
  };
  LogLine line{{.kind = static_cast<Kind>(upto(6))}, {ns += static_cast<std::int64_t>(upto(300))}};
  Event& event = line.event;
  event.node = static_cast<Node>(upto(9) == 0 ? kMostNodes - 1 : upto(40));
  if (upto(4) == 0) {
    const LogLine::Note notes[] = {LogLine::Note::summed, LogLine::Note::granted,
                                   LogLine::Note::home, LogLine::Note::lost};
    line.note = notes[upto(3)];
    event.kind = line.note == LogLine::Note::summed ? Kind::push : kNoKind;
    if (line.note >= LogLine::Note::home) event.ticket = upto(1000);
  }
  if (event.kind == Kind::push) {
    event.ticket = upto(9) == 0 ? upto(~std::uint64_t{0}) : upto(1000);
    event.version = upto(9) == 0 ? upto(~std::uint64_t{0}) : upto(1000);
  }
  if (event.kind == Kind::data_end) event.ticket = upto(~std::uint64_t{0});
  if (event.kind == Kind::command) event.argument = static_cast<std::uint32_t>(upto(~0u));
  return line;
}

// But for a note's time, which it has not.
bool same(const LogLine& a, const LogLine& b) {
  const bool timed = a.event.kind != kNoKind;
  return a.event.kind == b.event.kind && a.event.node == b.event.node &&
         (!timed || a.at.ns == b.at.ns) && a.event.ticket == b.event.ticket &&
         a.event.version == b.event.version && a.event.argument == b.event.argument &&
         a.note == b.note;
}

// Of so many lines in one block.
std::vector<std::byte> block(std::mt19937& random, int lines) {
  EventLog log(random() % 1000);
  const std::uint64_t first = log.next();
  std::int64_t ns = 0;
  for (int i = 0; i < lines; ++i) {
    const LogLine line = drawn(random, ns);
    log.append(line);
  }
  log.close();
  return *log.from(first).at(0);
}

void set_crc(std::vector<std::byte>& bytes) {
  BlockHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::size_t size = std::min<std::size_t>(head.size, bytes.size() - sizeof head);
  head.crc = crc32c(bytes.data() + sizeof head, size, crc32c(bytes.data(), 16));
  std::memcpy(bytes.data(), &head, sizeof head);
}

}  // namespace

TEST_CASE("what is appended comes back from any position on, however it is cut into blocks") {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t first = round % 2 ? 1'000'000'007 : 0;
    EventLog log(first);
    std::vector<LogLine> all;
    std::int64_t ns = 0;
    for (int i = 0; i < 2000; ++i) {
      all.push_back(drawn(random, ns));
      CHECK(log.append(all.back()) == first + all.size() - 1);
      if (random() % 64 == 0) log.close();
    }
    log.close();
    log.close();  // of nothing there is no block
    REQUIRE(log.closed() == log.next());
    for (const std::size_t position : {std::size_t{0}, std::size_t{777}, all.size()}) {
      std::vector<std::byte> sent;
      for (const EventLog::Block& one : log.from(first + position)) {
        sent.insert(sent.end(), one->begin(), one->end());
      }
      std::uint64_t next = first + position;
      ReadBlock read;
      for (std::span<const std::byte> left = sent; !left.empty();) {
        const std::size_t size = read.read(left);
        REQUIRE(size > 0);
        left = left.subspan(size);
        REQUIRE(read.first <= next);
        for (std::size_t i = 0; i < read.lines.size(); ++i) {
          if (read.first + i < next) continue;
          REQUIRE(same(read.lines[i], all[next - first]));
          ++next;
        }
      }
      CHECK(next == log.next());
    }
  }
}

TEST_CASE("a block that is full is closed by itself, and what is not closed nobody is told") {
  EventLog log;
  while (log.closed() == 0) log.append({Kind::push, kMostNodes - 1, log.next() << 40}, {1});
  CHECK(log.closed() == log.next());
  const auto blocks = log.from(0);
  REQUIRE(blocks.size() == 1);
  CHECK(blocks[0]->size() <= sizeof(BlockHead) + kMostBlock);
  log.append({Kind::wake}, {2});
  CHECK(log.from(0).size() == 1);
  CHECK(log.from(log.closed()).empty());
}

TEST_CASE("what is forgotten is asked for in vain") {
  EventLog log;
  for (int i = 0; i < 30; ++i) {
    log.append({Kind::pull, 1}, {i});
    if (i % 10 == 9) log.close();
  }
  log.forget(15);  // of the second block some are still asked for
  CHECK_THROWS_WITH_AS(log.from(9), doctest::Contains("begins at 10"), Error);
  CHECK(log.from(10).size() == 2);
  log.forget(30);
  CHECK(log.from(30).empty());
  CHECK_THROWS_AS(log.from(29), Error);
  CHECK_THROWS_WITH_AS(log.from(31), doctest::Contains("which has 30 so far"), Error);
}

TEST_CASE("a block whose end is not there is none, and one with another byte is refused") {
  std::mt19937 random(2);
  const std::vector<std::byte> good = block(random, 40);
  ReadBlock read;
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(read.read(std::span(good).first(size)) == 0);
    CHECK(read.lines.empty());
  }
  for (std::size_t place = 0; place < good.size(); ++place) {
    for (const unsigned bit : {0u, 3u, 7u}) {
      std::vector<std::byte> bad = good;
      bad[place] ^= std::byte{1} << bit;
      CAPTURE(place);
      bool taken = false;
      try {
        taken = read.read(bad) > 0;  // a larger size: the end is not there
      } catch (const Error&) {
      }
      CHECK_FALSE(taken);
    }
  }
}

TEST_CASE("steps, nodes that cannot be and times that go back are no lines of a log") {
  const auto written = [](std::vector<LogLine> lines) {
    std::vector<std::byte> bytes(sizeof(BlockHead) + lines.size() * kLongestLine);
    std::byte* to = bytes.data() + sizeof(BlockHead);
    LineWriter writer;
    for (const LogLine& line : lines) to = writer.put(to, line);
    bytes.resize(static_cast<std::size_t>(to - bytes.data()));
    const BlockHead head{0, static_cast<std::uint32_t>(lines.size()),
                         static_cast<std::uint32_t>(bytes.size() - sizeof head), 0, 0};
    std::memcpy(bytes.data(), &head, sizeof head);
    set_crc(bytes);
    return bytes;
  };
  ReadBlock read;
  CHECK(read.read(written({{{Kind::pull, 3}, {5}}, {{Kind::push, 3}, {5}}})) > 0);
  CHECK_THROWS_AS(read.read(written({{{Kind::pull, 3}, {5}, LogLine::Note::stepped}})), Error);
  CHECK_THROWS_AS(read.read(written({{{Kind::push, 3, 9}, {5}, LogLine::Note::missed}})), Error);
  CHECK_THROWS_AS(read.read(written({{{Kind::pull, kMostNodes}, {5}}})), Error);
  CHECK_THROWS_AS(read.read(written({{{Kind::pull}, {5}}, {{Kind::pull}, {4}}})), Error);
  CHECK_THROWS_AS(read.read(written({{{Kind::pull}, {-1}}})), Error);
}

// Whatever is read as a line is one that is written and read again; nothing outside is read (under
// AddressSanitizer).
TEST_CASE("bytes of anybody are lines or are refused") {
  std::mt19937 random(3);
  const std::uint64_t tries = asked_for("LEASHED_FUZZ", 100'000);
  std::uint64_t taken = 0, refused = 0;
  ReadBlock read, again;
  std::vector<std::byte> good;
  for (std::uint64_t n = 0; n < tries; ++n) {
    if (n % 100 == 0) good = block(random, 1 + static_cast<int>(random() % 30));
    std::vector<std::byte> bad = good;
    for (std::uint32_t changes = random() % 4; changes > 0; --changes) {
      const bool in_head = random() % 8 == 0;
      const std::size_t from = in_head ? 8 : sizeof(BlockHead);
      const std::size_t to = in_head ? sizeof(BlockHead) : bad.size();
      bad[from + random() % (to - from)] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) bad.resize(sizeof(BlockHead) + random() % (bad.size() - 23));
    set_crc(bad);
    const std::vector<std::byte> exact(bad);  // without room behind it
    try {
      if (read.read(exact) == 0) continue;
    } catch (const Error&) {
      ++refused;
      continue;
    }
    ++taken;
    EventLog log(read.first);
    for (const LogLine& line : read.lines) log.append(line);
    log.close();
    again.read(*log.from(read.first).at(0));
    REQUIRE(again.first == read.first);
    REQUIRE(again.lines.size() == read.lines.size());
    for (std::size_t i = 0; i < read.lines.size(); ++i) {
      REQUIRE(same(again.lines[i], read.lines[i]));
    }
  }
  CHECK(taken > tries / 10);
  CHECK(refused > tries / 10);
}
