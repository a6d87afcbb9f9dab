// Rows come once each, in order, whoever reads and takes them; and nobody waits for what cannot
// come.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/base/philox.h"
#include "leashed/data/repeated_rows.h"
#include "leashed/data/row_stream.h"

using namespace leashed;

namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

const RowLayout kLayout{1};

struct Made {
  std::size_t parts = 40;
  bool again = false;
  std::size_t failing_part = kNever;            // instead of which next() throws
  std::size_t failing_rows = kNever;            // of this part parse() finds no memory
  std::size_t bad_part = kNever;                // whose second row is bad
  std::atomic<std::size_t>* at_once = nullptr;  // parts handed out
};

std::size_t rows_of(std::size_t part) { return philox(1, 0, part)[0] % 5; }  // none too

// Part p has a few rows, whose numbers go on from the parts before: x of row i is i.
class Numbers final : public RowOrigin {
 public:
  explicit Numbers(const Made& made) : made_(made) {}

  std::unique_ptr<Part> next(const std::atomic<bool>&) override {
    if (at_ == made_.failing_part) throw Error("no more of it");
    if (at_ == made_.parts) return nullptr;
    auto part = std::make_unique<Numbered>();
    part->made = &made_;
    part->number = at_++;
    part->first = row_;
    row_ += rows_of(part->number);
    if (made_.at_once) made_.at_once->fetch_add(1, std::memory_order_relaxed);
    return part;
  }
  bool rewind() override {
    at_ = 0;
    return made_.again;
  }
  const std::vector<std::string>& names() const override { return names_; }
  const char* unit() const override { return "line"; }

 private:
  struct Numbered final : Part {
    ParsedRows parse() const override {
      if (number == made->failing_rows) throw std::bad_alloc();
      if (philox(2, 0, number)[0] % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      ParsedRows rows;
      rows.block = RowBlock(kLayout);
      const std::size_t count = rows_of(number);
      rows.lines = count;
      rows.block.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        rows.block.x[i] = static_cast<float>(first + i);
        rows.block.labels[i] = 0;
      }
      if (number == made->bad_part) rows.reject(2, 1, "it is bad");
      return rows;
    }
    const Made* made;
    std::size_t number, first;
  };

  const Made made_;
  const std::vector<std::string> names_ = {"numbers"};
  std::size_t at_ = 0, row_ = 0;
};

std::size_t all_rows(std::size_t parts) {
  std::size_t rows = 0;
  for (std::size_t p = 0; p < parts; ++p) rows += rows_of(p);
  return rows;
}

RowStream opened(const Made& made, const RowStream::Settings& settings) {
  return {std::make_unique<Numbers>(made), kLayout, settings};
}

// x of the rows from `first` on, taken by several threads, so many at a time.
std::vector<float> taken(RowStream& stream, std::size_t takers, std::size_t count,
                         std::size_t first = 0) {
  std::atomic<std::size_t> next{first};
  std::mutex lock;
  std::vector<float> all;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < takers; ++t) {
    threads.emplace_back([&] {
      for (;;) {
        const std::size_t at = next.fetch_add(count, std::memory_order_relaxed);
        RowBlock block(kLayout);
        double waited = 0;
        const std::size_t rows = stream.take(at, count, block, waited);
        const std::lock_guard holding(lock);
        if (rows > 0 && all.size() < at + rows - first) all.resize(at + rows - first, -1);
        std::copy(block.x.begin(), block.x.end(),
                  all.begin() + static_cast<std::ptrdiff_t>(at - first));
        if (rows < count) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

std::string error_of(const auto& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("of a row that has been taken its pass is known") {
  const std::size_t rows = all_rows(40);
  for (const std::size_t threads : {1, 3}) {
    RowStream stream = opened({.again = true}, {.threads = threads, .passes = 3});
    stream.start(5);
    taken(stream, 3, 7, 5);
    for (const std::size_t pass : {0, 1, 2}) {
      CHECK(stream.pass(std::max<std::size_t>(5, pass * rows)) == pass);
      CHECK(stream.pass(pass * rows + rows - 1) == pass);
      if (pass > 0) CHECK(stream.pass_rows() == rows);
    }
    stream.end();
  }
}

TEST_CASE("each row comes once and in order, whoever reads and takes") {
  const std::size_t rows = all_rows(40);
  for (const std::size_t threads : {1, 2, 5}) {
    for (const std::size_t places : {1, 3, 100}) {
      for (const std::size_t count : {1, 7, 1000}) {
        RowStream stream = opened({}, {.threads = threads, .places = places});
        stream.start();
        const std::vector<float> all = taken(stream, threads == 2 ? 3 : 1, count);
        REQUIRE(all.size() == rows);
        for (std::size_t i = 0; i < rows; ++i) CHECK(all[i] == static_cast<float>(i));
        CHECK(stream.counts().rows == rows);
        CHECK_FALSE(stream.has(rows));
      }
    }
  }
}

TEST_CASE("one thread reads all and then takes it, whatever places there are") {
  const std::size_t rows = all_rows(40);
  for (const std::size_t places : {1, 100}) {
    for (const std::size_t count : {1, 7, 1000}) {
      RowStream stream = opened({}, {.places = places});
      stream.read_here();
      const std::vector<float> all = taken(stream, 1, count);
      REQUIRE(all.size() == rows);
      for (std::size_t i = 0; i < rows; ++i) CHECK(all[i] == static_cast<float>(i));
      CHECK(stream.counts().rows == rows);
    }
  }
  RowStream failing = opened({.failing_part = 17}, {});
  failing.read_here();
  RowBlock block(kLayout);
  double waited = 0;
  CHECK(failing.take(0, all_rows(17), block, waited) == all_rows(17));
  CHECK(error_of([&] { failing.has(all_rows(17)); }) == "no more of it");
}

TEST_CASE("who would read a stream by himself that is read already is told so") {
  const char* const said = "read_here is once, in place of start(), for a stream of one pass";
  RowStream stream = opened({}, {});
  stream.read_here();
  CHECK(error_of([&] { stream.read_here(); }) == said);
  RowStream started = opened({}, {});
  started.start();
  CHECK(error_of([&] { started.read_here(); }) == said);
  for (const std::uint64_t passes : {0, 2}) {
    RowStream several = opened({.again = true}, {.passes = passes});
    CHECK(error_of([&] { several.read_here(); }) == said);
  }
}

TEST_CASE("parts that threads take at once, whole and in pieces, come as they were read") {
  constexpr std::size_t kParts = 400;
  const std::size_t rows = all_rows(kParts);
  for (const bool here : {false, true}) {
    RowStream stream = opened({.parts = kParts}, {.threads = 2, .places = 16});
    here ? stream.read_here() : stream.start();
    std::atomic<std::size_t> wrong{0}, next{0};
    std::vector<std::size_t> first;  // of each part; of every third its rows come by ones
    for (std::size_t p = 0; p < kParts; ++p) first.push_back(all_rows(p));
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          for (std::size_t p = 0; (p = next.fetch_add(1)) < kParts;) {
            const std::size_t each = p % 3 == 0 ? 1 : std::max<std::size_t>(rows_of(p), 1);
            for (std::size_t at = 0; at < rows_of(p); at += each) {
              RowBlock block(kLayout);
              double waited = 0;
              if (stream.take(first[p] + at, each, block, waited) != each) ++wrong;
              for (std::size_t i = 0; i < block.x.size(); ++i) {
                if (block.x[i] != static_cast<float>(first[p] + at + i)) ++wrong;
              }
            }
          }
        });
      }
    }
    CHECK(wrong == 0);
    CHECK_FALSE(stream.has(rows));
  }
}

TEST_CASE("a part whose rows are taken at once, out of turn, is no other's") {
  constexpr std::size_t kParts = 40;
  RowStream stream = opened({}, {.places = kParts});
  stream.read_here();
  const auto take = [&](std::size_t first, std::size_t count) {
    RowBlock block(kLayout);
    double waited = 0;
    CHECK(stream.take(first, count, block, waited) == count);
    REQUIRE(block.x.size() == count);
    for (std::size_t i = 0; i < count; ++i) CHECK(block.x[i] == static_cast<float>(first + i));
  };
  for (const std::size_t odd : {1, 0}) {
    for (std::size_t p = odd; p < kParts; p += 2) {
      if (rows_of(p) > 0) take(all_rows(p), rows_of(p));
    }
  }
}

TEST_CASE("rows that were looked at come all the same") {
  const std::size_t rows = all_rows(40);
  for (const std::uint64_t window : {0, 16}) {
    for (const std::size_t first : {std::size_t{0}, rows / 2}) {
      for (const std::size_t count : {std::size_t{5}, 2 * rows}) {
        RowStream stream = opened({}, {.threads = 2, .places = 3, .window = window});
        stream.start(first);
        RowBlock seen(kLayout);
        while (!stream.look(count, seen, 0.0001)) {
        }
        stream.start(first);  // by who takes them
        const std::vector<float> all = taken(stream, 1, 7, first);
        REQUIRE(all.size() == rows - first);
        REQUIRE(seen.rows() == std::min(count, rows - first));
        CHECK(std::equal(seen.x.begin(), seen.x.end(), all.begin()));
        CHECK(stream.counts().rows == rows);
      }
    }
  }
}

TEST_CASE("rows that have been taken cannot be looked at, and those behind are still there") {
  RowStream stream = opened({}, {});
  stream.start();
  RowBlock block(kLayout);
  CHECK(stream.take_next(5, block, 60));
  RowBlock seen(kLayout);
  CHECK(error_of([&] { stream.look(5, seen, 60); }) ==
        "the first rows have been taken: look at them before that");
  RowBlock more(kLayout);
  CHECK(stream.take_next(1, more, 60));
  CHECK(more.x == std::vector<float>{5});
}

TEST_CASE("those are looked at that come before what reading throws, which is told who takes") {
  RowStream stream = opened({.failing_part = 20}, {.threads = 2});
  stream.start();
  RowBlock seen(kLayout);
  while (!stream.look(1000, seen, 0.0001)) {
  }
  CHECK(seen.rows() == all_rows(20));
  double waited = 0;
  RowBlock block(kLayout);
  CHECK(stream.take(0, 3, block, waited) == 3);
  CHECK_THROWS_AS(stream.take(3, 1000, block, waited), Error);
}

TEST_CASE("rows in memory come again and again, cut as they are asked for") {
  RowBlock rows(kLayout);
  rows.resize(5);
  for (std::size_t i = 0; i < 5; ++i) rows.x[i] = static_cast<float>(i);
  RowStream stream(std::make_unique<RepeatedRows>(std::move(rows)), kLayout,
                   {.places = 2, .passes = 0});
  stream.start();
  for (std::size_t first = 0; first < 60; first += 12) {
    RowBlock block(kLayout);
    double waited = 0;
    REQUIRE(stream.take(first, 12, block, waited) == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      CHECK(block.x[i] == static_cast<float>((first + i) % 5));
    }
  }
  stream.end();
}

TEST_CASE("threads that ask for the next rows have each once, and each of them in order") {
  const std::size_t rows = all_rows(40);
  for (const std::uint64_t window : {0, 16}) {
    for (const std::size_t first : {std::size_t{0}, rows / 2}) {
      RowStream stream = opened({}, {.threads = 2, .places = 3, .window = window});
      stream.start(first);
      std::mutex lock;
      std::vector<float> all;
      std::vector<std::thread> threads;
      for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          for (float last = -1;;) {
            RowBlock block(kLayout);
            while (!stream.take_next(3, block, 0.0001)) {
            }
            if (block.rows() == 0) return;
            const std::lock_guard holding(lock);
            for (const float x : block.x) {
              if (window == 0) CHECK(x > last);
              all.push_back(last = x);
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      RowStream another = opened({}, {.window = window});
      another.start(first);
      std::vector<float> expected = taken(another, 1, 1, first);
      std::sort(all.begin(), all.end());
      std::sort(expected.begin(), expected.end());
      CHECK(all == expected);
    }
  }
}

TEST_CASE("passes follow each other, and a run may begin in their midst") {
  const std::size_t rows = all_rows(40);
  RowStream stream = opened({.again = true}, {.threads = 3, .passes = 3});
  const std::size_t first = rows + rows / 2;
  stream.start(first);
  const std::vector<float> all = taken(stream, 2, 8, first);
  REQUIRE(all.size() == 3 * rows - first);
  CHECK(all.front() == static_cast<float>(first));
  CHECK(all.back() == static_cast<float>(3 * rows - 1));
  CHECK(stream.counts().rows == rows);  // of the first pass
}

TEST_CASE("a window has its rows in an order that hangs on the seed alone") {
  constexpr std::size_t kWindow = 16;
  const std::size_t rows = all_rows(40);
  std::vector<float> first;
  for (const std::size_t threads : {1, 4}) {
    RowStream stream = opened({}, {.threads = threads, .places = 2, .window = kWindow, .seed = 3});
    stream.start();
    std::vector<float> all = taken(stream, threads, 5);
    REQUIRE(all.size() == rows);
    if (first.empty()) first = all;
    CHECK(all == first);
    for (std::size_t begin = 0; begin < rows; begin += kWindow) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto to = all.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kWindow, rows));
      std::sort(from, to);
    }
    for (std::size_t i = 0; i < rows; ++i) CHECK(all[i] == static_cast<float>(i));
  }
  for (const std::size_t from : {std::size_t{1}, kWindow, 2 * kWindow + 5}) {
    RowStream stream = opened({}, {.threads = 2, .window = kWindow, .seed = 3});
    stream.start(from);
    CHECK(taken(stream, 1, 5, from) ==
          std::vector<float>(first.begin() + static_cast<std::ptrdiff_t>(from), first.end()));
  }
}

TEST_CASE("what reading throws comes after the rows before it, to all who wait") {
  for (const std::size_t threads : {1, 4}) {
    for (const bool memory : {false, true}) {
      const Made made = memory ? Made{.failing_rows = 17} : Made{.failing_part = 17};
      RowStream stream = opened(made, {.threads = threads, .places = 4});
      stream.start();
      const std::size_t before = all_rows(17);
      std::atomic<std::size_t> told{0};
      std::vector<std::thread> waiting;
      for (std::size_t t = 0; t < 3; ++t) {
        waiting.emplace_back([&, t] {
          const std::string error = error_of([&] {
            RowBlock block(kLayout);
            double waited = 0;
            stream.take(before + t, 1, block, waited);
          });
          if (error == (memory ? std::bad_alloc().what() : "no more of it")) {
            told.fetch_add(1, std::memory_order_relaxed);
          }
        });
      }
      RowBlock block(kLayout);
      double waited = 0;
      // Where a part's rows are not made, threads may have been at those before it.
      const std::string error = error_of([&] { stream.take(0, before, block, waited); });
      if (!memory) CHECK(error == "");
      if (error.empty()) CHECK(block.rows() == before);
      for (std::thread& thread : waiting) thread.join();
      CHECK(told.load() == 3);
      CHECK(error_of([&] { stream.has(before); }) != "");
    }
  }
}

TEST_CASE("a bad row ends reading behind the rows before it, by its number") {
  std::size_t bad = 10;
  while (rows_of(bad) < 2) ++bad;
  const std::size_t before = all_rows(bad);
  for (const std::size_t threads : {1, 4}) {
    RowStream stream = opened({.bad_part = bad}, {.threads = threads});
    stream.start();
    RowBlock block(kLayout);
    double waited = 0;
    CHECK(stream.take(0, before + 1, block, waited) == before + 1);
    CHECK(error_of([&] { stream.take(before + 1, 1, block, waited); }) ==
          "numbers: line " + std::to_string(before + 2) +
              ": it is bad; bad=\"skip\" leaves such lines out");
  }
}

TEST_CASE("who waits is woken by stop, and whoever goes early waits for nobody") {
  for (const std::size_t threads : {1, 4}) {
    RowStream stream = opened({.parts = kNever}, {.threads = threads, .places = 2});
    stream.start();
    std::thread waiting([&] {
      RowBlock block(kLayout);
      double waited = 0;
      CHECK(stream.take(std::size_t{1} << 60, 1, block, waited) == 0);
      CHECK_FALSE(stream.has(std::size_t{1} << 60));
    });
    RowBlock first(kLayout);
    CHECK(stream.take_next(1, first, 60));
    CHECK(first.x == std::vector<float>{0});
    stream.stop();
    waiting.join();
    RowBlock block(kLayout);
    double waited = 0;
    CHECK(stream.take(0, 1, block, waited) == 0);
    CHECK(stream.take_next(1, block, 60));
    CHECK(block.rows() == 0);
  }
  RowStream never = opened({}, {});  // not started
  RowBlock block(kLayout);
  CHECK_FALSE(never.take_next(1, block, 0.001));
}

TEST_CASE("no more parts are read than there are places, but for who waits") {
  std::atomic<std::size_t> handed{0};
  constexpr std::size_t kThreads = 3, kPlaces = 5;
  RowStream stream =
      opened({.parts = 1000, .at_once = &handed}, {.threads = kThreads, .places = kPlaces});
  stream.start();
  std::size_t part = 0, row = 0;
  for (; part < 500; ++part) {
    RowBlock block(kLayout);
    double waited = 0;
    CHECK(stream.take(row, rows_of(part), block, waited) == rows_of(part));
    row += rows_of(part);
    // Parts without rows behind it may have gone too.
    std::size_t empty = part + 1;
    while (rows_of(empty) == 0) ++empty;
    CHECK(handed.load() <= empty + kPlaces + kThreads);
  }
}

TEST_CASE("what has no row at all is an error, and a pass without rows is the last") {
  RowStream stream = opened({.parts = 0, .again = true}, {.passes = 0});
  stream.start();
  CHECK(error_of([&] { stream.has(0); }) == "numbers: there is no row in it");
}
