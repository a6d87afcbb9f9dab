// Files of changes: together with the file of all rows they are the table, whatever has happened to
// it between them.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/table/saved.h"
#include "leashed/table/saving.h"

using namespace leashed;

namespace {

struct Files {
  ~Files() {
    for (const std::string& path : paths) std::remove(path.c_str());
  }
  const std::string& next() {
    static int made = 0;
    return paths.emplace_back("/tmp/leashed-" + std::to_string(getpid()) + "-changes" +
                              std::to_string(made++));
  }
  std::vector<std::string> paths;
};

Table::Settings settings(bool grows, const char* evict = "none", std::size_t max_bytes = 1 << 20) {
  return {.name = "t",
          .dim = 6,
          .rows = grows ? std::size_t{0} : 500,
          .max_bytes = grows ? max_bytes : 0,
          .initial = {"normal", {{"sigma", 1}}},
          .rule = {"adagrad", {{"lr", 0.1}, {"eps", 1e-10}, {"initial_accumulator", 0}}},
          .staleness = {"none"},
          .evict = evict,
          .seed = 5};
}

void update(SavedTable& table, std::mt19937_64& random, std::size_t n, std::uint64_t ids_end) {
  std::vector<std::uint64_t> ids(n);
  std::vector<float> gradients(n * table.dim());
  for (auto& id : ids) id = random() % ids_end;
  for (float& g : gradients) g = static_cast<float>(random() % 100) - 50;
  table.update(ids.data(), n, gradients.data(), nullptr);
}

// Version, time, period and floats of each row that a file has.
using Content = std::map<std::uint64_t, std::vector<float>>;
Content in_file(const std::string& path, std::size_t floats) {
  Content content;
  SavedReader file(path);
  SavedRow row;
  while (const float* values = file.next(row)) {
    std::vector<float>& all = content[row.id];
    all.assign(values, values + floats);
    all.push_back(static_cast<float>(row.version));
    all.push_back(static_cast<float>(row.touched));
    all.push_back(static_cast<float>(row.period));
  }
  return content;
}
Content of(SavedTable& table) {
  Files files;
  const std::string& path = files.next();
  table.save(path, "t");
  return in_file(path, 12);
}

}  // namespace

TEST_CASE("all rows and the changes of them are the table at each of the files") {
  struct Case {
    bool grows;
    const char* evict;
    std::size_t max_bytes;
  };
  for (const Case& each : {Case{false, "none", 0}, Case{true, "none", 1 << 20},
                           Case{true, "age", 40000}, Case{true, "norm", 40000}}) {
    CAPTURE(each.grows);
    CAPTURE(each.evict);
    for (const bool quiet : {true, false}) {
      Files files;
      SavedTable table(settings(each.grows, each.evict, each.max_bytes));
      const bool evicts = each.max_bytes == 40000;
      std::mt19937_64 random(3);
      const std::uint64_t ids = evicts ? 2000 : 500;
      for (int k = 0; k < 20; ++k) update(table, random, 60, ids);
      table.save_tracked(files.next(), "t", quiet);
      for (int k = 0; k < 12; ++k) {
        // Nothing, a little, and so much that ids go and come back.
        for (int j = 0; j < k % 3 * 15; ++j) update(table, random, 20, ids);
        table.save_changes(files.next(), "t", quiet);
        if (k % 3 == 0) CHECK(in_file(files.paths.back(), 12).empty());
        SavedTable other(settings(each.grows, each.evict, each.max_bytes));
        other.load(files.paths, "t");
        REQUIRE(of(other) == of(table));
        CHECK(other.steps() == table.steps());
      }
      if (evicts) CHECK(table.growth().statistics().evicted > 100);
    }
  }
}

TEST_CASE("changes are of the rows that were updated and of no others") {
  Files files;
  SavedTable table(settings(false));
  table.save_tracked(files.next(), "t", true);
  const std::vector<std::uint64_t> ids = {3, 77, 499};
  const std::vector<float> gradients(18, 1);
  table.update(ids.data(), 3, gradients.data(), nullptr);
  table.save_changes(files.next(), "t", true);
  const Content changed = in_file(files.paths.back(), 12);
  CHECK(changed.size() == 3);
  for (const std::uint64_t id : ids) CHECK(changed.contains(id));
}

// One gradient of each id, all values of which are the same.
void update_each(SavedTable& table, const std::vector<std::uint64_t>& ids, float gradient = 1) {
  const std::vector<float> gradients(ids.size() * table.dim(), gradient);
  table.update(ids.data(), ids.size(), gradients.data(), nullptr);
}

// Those of `ids` that have no row.
std::vector<std::uint64_t> without_row(SavedTable& table, const std::vector<std::uint64_t>& ids) {
  const std::vector<std::uint64_t> live = table.ids();
  const std::set<std::uint64_t> lives(live.begin(), live.end());
  std::vector<std::uint64_t> without;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(without),
               [&](std::uint64_t id) { return !lives.contains(id); });
  return without;
}

TEST_CASE("a row that was never updated is in no file, and begins as it did") {
  Files files;
  SavedTable table(settings(false));
  std::mt19937_64 random(3);
  update(table, random, 60, 100);
  const auto save = [&files](SavedTable& of) {
    of.save_touched(files.next(), "t", true);
    return files.paths.back();
  };
  const std::string touched = save(table);
  const Content rows = of(table), saved = in_file(touched, 12);
  CHECK(rows.size() == 500);
  for (const auto& [id, row] : rows) {
    REQUIRE(saved.contains(id) == (row[12] > 0));
    if (saved.contains(id)) REQUIRE(saved.at(id) == row);
  }
  CHECK(saved.size() > 30);

  // Whatever there was before, and whatever a rule begins with here.
  Table::Settings others = settings(false);
  others.rule = {"adagrad", {{"lr", 0.1}, {"eps", 1e-10}, {"initial_accumulator", 3}}};
  SavedTable other(others);
  update(other, random, 400, 500);
  other.load({touched}, "t");
  CHECK(of(other) == rows);
  CHECK(in_file(save(other), 12) == saved);
  SavedTable again(settings(false));
  again.load({files.paths.back()}, "t");
  CHECK(of(again) == rows);

  std::ifstream in(touched, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {}), damaged = files.next();
  for (std::size_t at = 0; at < 100; ++at) {
    CAPTURE(at);
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    std::ofstream(damaged, std::ios::binary) << changed;
    CHECK_THROWS_AS(again.load({damaged}, "t"), Error);
  }
  CHECK(of(again) == rows);

  // What follows is of rows that the file has and of others.
  again.track();
  update(again, random, 100, 500);
  again.save_changes(files.next(), "t", true);
  other.load({touched, files.paths.back()}, "t");
  CHECK(of(other) == of(again));

  // Those of another seed, as they would begin there.
  Table::Settings seeds = settings(false);
  seeds.seed = 9;
  SavedTable of_another(seeds);
  of_another.load({touched}, "t", {}, TableFiles::Begins{5, 0});
  CHECK(of(of_another) == rows);
}

TEST_CASE("of a table whose rows may be any all are written, and of one that grows") {
  Files files;
  Table::Settings without = settings(false);
  without.versions = false;
  SavedTable table(without), other(settings(false));
  std::mt19937_64 random(3);
  update(table, random, 400, 500);
  table.save(files.next(), "t");
  other.load(files.paths, "t");
  other.save_touched(files.next(), "t", true);
  CHECK(in_file(files.paths.back(), 12).size() == 500);
  // Whoever has its memory may write to it.
  SavedTable shown(settings(false)), touched(settings(false));
  touched.save_touched(files.next(), "t", true);
  const std::string none = files.paths.back();
  CHECK(in_file(none, 12).empty());
  const Content begun = of(shown);
  shown.in_place();
  shown.shown();
  shown.save_touched(files.next(), "t", true);
  CHECK(in_file(files.paths.back(), 12).size() == 500);
  shown.in_place().first[0] = 7;
  shown.load({none}, "t");
  CHECK(of(shown) == begun);
  shown.save_touched(files.next(), "t", true);
  CHECK(in_file(files.paths.back(), 12).size() == 500);
  // It waits for no save, from whose call, or beside whom, it may come.
  SavedTable busy(settings(false));
  busy.save_touched(files.next(), "t", false, [&] { busy.shown(); });
  busy.save_touched(files.next(), "t", true);
  CHECK(in_file(files.paths.back(), 12).size() == 500);
  SavedTable grows(settings(true));
  update(grows, random, 60, 100);
  grows.save_touched(files.next(), "t", true);
  CHECK(in_file(files.paths.back(), 12) == of(grows));
}

TEST_CASE("an id that was evicted and has come back to its row, version and time is written") {
  Files files;
  SavedTable table(settings(true, "norm", 240000));
  const std::uint64_t capacity = table.growth().statistics().capacity;
  std::vector<std::uint64_t> all(capacity);
  std::iota(all.begin(), all.end(), 1);
  update_each(table, all);
  table.save_tracked(files.next(), "t", true);
  std::mt19937_64 random(3);
  for (int k = 0; k < 50; ++k) {
    const std::vector<std::uint64_t> before = without_row(table, all);
    update_each(table, {before[random() % before.size()]});
    // Those that have just gone come back in some order, each to one update and other values.
    std::vector<std::uint64_t> gone;
    const std::vector<std::uint64_t> now = without_row(table, all);
    std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                        std::back_inserter(gone));
    std::shuffle(gone.begin(), gone.end(), random);
    for (const std::uint64_t id : gone) update_each(table, {id}, static_cast<float>(k + 2));
    table.save_changes(files.next(), "t", true);
    SavedTable other(settings(true, "norm", 240000));
    other.load(files.paths, "t");
    REQUIRE(of(other) == of(table));
  }
  CHECK(table.growth().statistics().evicted > 100);
}

TEST_CASE("a row that is said to have been touched later is written") {
  Files files;
  SavedTable table(settings(true, "age", 12000));
  const std::uint64_t capacity = table.growth().statistics().capacity;
  std::vector<std::uint64_t> ids(capacity / 2);
  std::iota(ids.begin(), ids.end(), 1);
  update_each(table, ids);
  table.save_tracked(files.next(), "t", true);
  // Until the others are as old as a row can be said to be, and are compared.
  const std::vector<std::uint64_t> newer(ids.begin(), ids.begin() + 8);
  for (std::uint64_t k = 0; k < 0x8010 * (capacity / 16) / newer.size(); ++k) {
    update_each(table, newer);
  }
  const Content before = of(table);
  for (std::uint64_t id = 1000; id < 1000 + capacity / 2 + 8; ++id) update_each(table, {id});
  std::size_t later = 0;
  for (const auto& [id, row] : of(table)) {
    const auto found = before.find(id);
    later += found != before.end() && found->second[12] == row[12] && found->second != row;
  }
  CHECK(later > 0);
  table.save_changes(files.next(), "t", true);
  SavedTable other(settings(true, "age", 12000));
  other.load(files.paths, "t");
  CHECK(of(other) == of(table));
}

TEST_CASE("an id that has another row before the scan is over is not lost") {
  SavedTable table(settings(true, "age", 250000)), other(settings(true, "age", 250000));
  const std::uint64_t capacity = table.growth().statistics().capacity;
  REQUIRE(capacity > 1500);
  REQUIRE(capacity < 2048);  // of one shard
  std::vector<std::uint64_t> ids(capacity);
  std::iota(ids.begin(), ids.end(), 1);
  for (const std::uint64_t id : ids) update_each(table, {id});
  std::size_t back = 0;
  // In the middle of the scan ids are evicted, and come back to other rows, some in slots that the
  // scan has yet to see.
  for (int k = 0; k < 100; ++k) {
    Files files;
    table.save_tracked(files.next(), "t", true);
    int looks = 0;
    table.save_changes(files.next(), "t", true, [&] {
      if (looks++ != 1) return;
      std::vector<std::uint64_t> before = without_row(table, ids);
      for (std::size_t i = 0; i < 30; ++i) update_each(table, {before[i]});
      const std::vector<std::uint64_t> now = without_row(table, ids);
      std::vector<std::uint64_t> gone;
      std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                          std::back_inserter(gone));
      for (const std::uint64_t id : gone) update_each(table, {id});
      back += gone.size();
    });
    table.save_changes(files.next(), "t", true);
    other.load(files.paths, "t");
    REQUIRE(of(other) == of(table));
  }
  CHECK(back > 1000);
}

TEST_CASE("who saves within a call that saves is told so, and that call goes on") {
  Files files;
  SavedTable table(settings(true, "none", 240000)), other(settings(true, "none", 240000));
  std::vector<std::uint64_t> ids(3000);
  std::iota(ids.begin(), ids.end(), 1);
  update_each(table, ids);
  Files one;
  const std::string whole = one.next();
  table.save(whole, "t");
  int refused = 0;
  const auto again = [&] {
    const auto is_refused = [&](const auto& call) {
      CHECK_THROWS_WITH_AS(call(), doctest::Contains("signal's handler"), Error);
      ++refused;
    };
    is_refused([&] { table.save_changes("/tmp/x", "t", true); });
    is_refused([&] { table.save_tracked("/tmp/x", "t", true); });
    is_refused([&] { table.track(); });
    CHECK_THROWS_AS(table.load({whole}, "t"), Error);
  };
  table.save_tracked(files.next(), "t", true, again);
  update_each(table, {7, 8});
  table.save_changes(files.next(), "t", false, again);
  table.track(again);
  CHECK(refused > 9);
  other.load(files.paths, "t");
  CHECK(of(other) == of(table));
  // Another thread waits, and looks at signals meanwhile.
  Files waited;
  const std::string behind = waited.next();
  std::thread waits;
  std::atomic<int> looks{0};
  update_each(table, {9});
  table.save_changes(files.next(), "t", true, [&] {
    if (waits.joinable()) return;
    waits = std::thread([&] { table.save_changes(behind, "t", true, [&] { ++looks; }); });
    while (looks == 0) std::this_thread::yield();
  });
  waits.join();
  other.load(files.paths, "t");
  CHECK(of(other) == of(table));
}

TEST_CASE("what is evicted while all rows are written, and what comes then, is written or not") {
  Files files;
  SavedTable table(settings(true, "age")), other(settings(true, "age"));
  const std::uint64_t capacity = table.growth().statistics().capacity;
  std::vector<std::uint64_t> ids(2 * capacity), more(capacity / 40);
  std::iota(ids.begin(), ids.end(), 1);
  update_each(table, ids);
  for (std::uint64_t each = 10 * capacity; each < 11 * capacity; ++each) update_each(table, {each});
  std::uint64_t id = 3 * capacity;
  table.save(files.next(), "t", [&] {
    std::iota(more.begin(), more.end(), id);
    id += more.size();
    update_each(table, more);
  });
  const Content written = in_file(files.paths.back(), 12), now = of(table);
  std::size_t gone = 0, came = 0;
  for (const auto& [each, _] : written) {
    gone += !now.contains(each);
    came += each >= 3 * capacity && each < 10 * capacity;
  }
  CHECK(gone > 0);
  CHECK(came > 0);
  other.load(files.paths, "t");
  CHECK(of(other) == written);
}

TEST_CASE("what a file has is loaded, however few rows that leaves free") {
  Files files;
  SavedTable table(settings(true, "age", 250000)), other(settings(true, "age", 250000));
  const std::uint64_t capacity = table.growth().statistics().capacity;
  SavedTable full(settings(true, "none", 500000));
  std::vector<std::uint64_t> ids(capacity - 2);  // two more always have a row
  std::iota(ids.begin(), ids.end(), 1);
  update_each(full, ids);
  full.save(files.next(), "t");
  other.load(files.paths, "t");
  CHECK(of(other) == of(full));
  CHECK(of(other).size() == capacity);
  // And goes on with changes, though it has to make room now.
  other.track();
  std::iota(ids.begin(), ids.end(), 5 * capacity);
  update_each(other, ids);
  other.save_changes(files.next(), "t", true);
  table.load(files.paths, "t");
  CHECK(of(table) == of(other));
}

TEST_CASE("a table that was loaded goes on with changes of what it was loaded from") {
  for (const bool grows : {false, true}) {
    Files files;
    SavedTable table(settings(grows)), other(settings(grows));
    std::mt19937_64 random(4);
    for (int k = 0; k < 20; ++k) update(table, random, 60, 500);
    table.save_tracked(files.next(), "t", true);
    update(table, random, 10, 500);
    table.save_changes(files.next(), "t", true);
    other.load(files.paths, "t");
    CHECK_THROWS_WITH_AS(other.save_changes("/tmp/x", "t", true), doctest::Contains("save all"),
                         Error);
    other.track();
    update(other, random, 10, 500);
    other.save_changes(files.next(), "t", true);
    CHECK(in_file(files.paths.back(), 12).size() <= 10);
    table.load(files.paths, "t");
    CHECK(of(table) == of(other));
  }
}

TEST_CASE("what threads update while files are written is in one of them") {
  for (const bool grows : {false, true}) {
    Files files;
    const char* const evict = grows ? "age" : "none";
    SavedTable table(settings(grows, evict, 40000)), other(settings(grows, evict, 40000));
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned w = 0; w < 2; ++w) {
      threads.emplace_back([&, w] {
        std::mt19937_64 random(w);
        while (!stop.load()) update(table, random, 40, grows ? 1000 : 500);
      });
    }
    table.save_tracked(files.next(), "t", false);
    for (int k = 0; k < 10; ++k) table.save_changes(files.next(), "t", false);
    stop.store(true);
    for (std::thread& thread : threads) thread.join();
    table.save_changes(files.next(), "t", false);
    other.load(files.paths, "t");
    CHECK(of(other) == of(table));
  }
}

TEST_CASE("files in the wrong order, damaged ones and what nothing follows are refused") {
  Files files;
  SavedTable table(settings(true, "age", 40000)), other(settings(true, "age", 40000));
  CHECK_THROWS_WITH_AS(table.save_changes("/tmp/x", "t", true), doctest::Contains("save all"),
                       Error);
  std::mt19937_64 random(6);
  for (int k = 0; k < 20; ++k) update(table, random, 60, 2000);
  table.save_tracked(files.next(), "t", true);
  for (int k = 0; k < 50; ++k) update(table, random, 60, 2000);
  table.save_changes(files.next(), "t", true);
  const std::string all = files.paths[0], changes = files.paths[1];
  REQUIRE(!SavedReader(changes).header().gone.empty());
  CHECK_THROWS_WITH_AS(other.load({changes}, "t"), doctest::Contains("changes alone"), Error);
  CHECK_THROWS_WITH_AS(other.load(std::vector{all, all}, "t"), doctest::Contains("no changes"),
                       Error);
  const Content before = of(other);
  std::ifstream in(changes, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::string damaged = files.next();
  for (std::size_t at = 0; at < bytes.size(); at += at < 100 ? 1 : 997) {
    CAPTURE(at);
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x80);
    std::ofstream(damaged, std::ios::binary) << changed;
    CHECK_THROWS_AS(other.load(std::vector{all, damaged}, "t"), Error);
  }
  CHECK(of(other) == before);
  // What could not be written is followed by nothing.
  CHECK_THROWS_AS(table.save_changes("/nowhere/x", "t", true), Error);
  CHECK_THROWS_WITH_AS(table.save_changes(damaged, "t", true), doctest::Contains("save all"),
                       Error);
  Table::Settings without = settings(false);
  without.versions = false;
  SavedTable uncounted(without);
  CHECK_THROWS_WITH_AS(uncounted.save_tracked(damaged, "t", true), doctest::Contains("no versions"),
                       Error);
}
