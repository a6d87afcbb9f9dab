// Fixed tables of which several processes have a part each: by ids they are one table.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/table/saving.h"

using namespace leashed;

namespace {

Table::Settings settings_of(std::size_t rows, std::size_t dim, bool versions) {
  return {.name = "t",
          .dim = dim,
          .rows = rows,
          .initial = {"uniform", {{"bound", 1}}},
          .rule = {"adagrad", {{"lr", 0.1}, {"eps", 1e-10}, {"initial_accumulator", 0}}},
          .staleness = {"none"},
          .seed = 3,
          .versions = versions};
}

struct Parts {
  Parts(Table::Settings settings, std::size_t servers)
      : placement({{false, RowPlacement::kSpread}}, RowPlacement::evenly(servers)) {
    for (std::size_t s = 0; s < servers; ++s) {
      settings.shards = placement.shards(0, s);
      tables.push_back(std::make_unique<SavedTable>(settings));
    }
  }

  SavedTable& of(std::uint64_t id) { return *tables[placement(0, id)]; }
  Table::Digest digest() {
    Table::Digest sum{};
    for (const auto& table : tables) {
      const Table::Digest of = table->digest();
      for (std::size_t i = 0; i < 2; ++i) sum[i] += of[i];
    }
    return sum;
  }

  RowPlacement placement;
  std::vector<std::unique_ptr<SavedTable>> tables;
};

// One step of random ids and gradients, by ids in the whole table and in its parts.
void update(SavedTable& whole, Parts& parts, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::uint64_t> ids(50);
  std::vector<float> gradients(ids.size() * whole.dim());
  for (std::uint64_t& id : ids) id = random() % whole.settings().rows;
  for (float& g : gradients) g = normal(random);
  whole.update(ids.data(), ids.size(), gradients.data(), nullptr);
  for (const auto& part : parts.tables) {
    std::vector<std::uint64_t> own;
    std::vector<float> of_own;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (&parts.of(ids[i]) != part.get()) continue;
      own.push_back(ids[i]);
      const auto first = gradients.begin() + static_cast<std::ptrdiff_t>(i * whole.dim());
      of_own.insert(of_own.end(), first, first + static_cast<std::ptrdiff_t>(whole.dim()));
    }
    part->update(own.data(), own.size(), of_own.data(), nullptr);
  }
}

void check_same(SavedTable& whole, Parts& parts) {
  std::vector<float> values(whole.dim()), expected(whole.dim());
  std::uint32_t version = 0, of_whole = 0;
  for (std::uint64_t id = 0; id < whole.settings().rows; ++id) {
    whole.lookup(&id, 1, expected.data(), &of_whole);
    parts.of(id).lookup(&id, 1, values.data(), &version);
    REQUIRE(values == expected);
    REQUIRE(version == of_whole);
  }
  CHECK(parts.digest() == whole.digest());
}

struct File {
  explicit File(const std::string& name)
      : path("/tmp/leashed-" + std::to_string(getpid()) + "-" + name) {}
  ~File() { std::remove(path.c_str()); }
  std::string path;
};

}  // namespace

TEST_CASE(
    "the parts of a fixed table are by ids the whole, however many, from first value to file") {
  const File all("whole"), own("part");
  for (const std::size_t rows : {1, 255, 256, 700}) {
    for (const std::size_t servers : {1, 2, 3, 7, 256}) {
      for (const bool versions : {true, false}) {
        CAPTURE(rows);
        CAPTURE(servers);
        CAPTURE(versions);
        const Table::Settings settings = settings_of(rows, 3, versions);
        SavedTable whole(settings);
        Parts parts(settings, servers), again(settings, servers), of_whole(settings, servers);
        std::size_t sum = 0;
        for (const auto& part : parts.tables) sum += part->growth().statistics().capacity;
        CHECK(sum == rows);
        check_same(whole, parts);
        std::mt19937 random(1);
        for (int step = 0; step < 3; ++step) update(whole, parts, random);
        check_same(whole, parts);

        whole.save(all.path, "kind");
        for (std::size_t s = 0; s < servers; ++s) {
          parts.tables[s]->save(own.path, "kind");
          again.tables[s]->load({own.path}, "kind");
          of_whole.tables[s]->load({all.path}, "kind");
        }
        check_same(whole, again);
        check_same(whole, of_whole);
      }
    }
  }
}

TEST_CASE("rows that several threads begin are those that one would, also where it is called off") {
  constexpr std::size_t kRows = 200'001;
  Table::Settings settings = settings_of(kRows, 2, true);
  int looks = 0;
  SavedTable whole(settings, [&] { ++looks; });
  CHECK(looks > 0);
  settings.rows = 0;
  settings.max_bytes = 1 << 16;
  SavedTable grows(settings);  // an id that has no row is told what it would begin with
  std::vector<std::uint64_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> values(2 * kRows), expected(2 * kRows);
  whole.lookup(ids.data(), kRows, values.data(), nullptr);
  grows.lookup(ids.data(), kRows, expected.data(), nullptr);
  CHECK(values == expected);
  settings.rows = kRows;
  settings.max_bytes = 0;
  CHECK_THROWS_AS(SavedTable(settings, [] { throw Error("called off"); }), Error);
}

TEST_CASE("parts of any number make the whole, and parts of any other number") {
  for (const std::size_t rows : {1, 255, 700}) {
    for (const std::size_t servers : {1, 2, 3, 7}) {
      const bool touched = rows == 700 || servers == 3;  // or all
      CAPTURE(rows);
      CAPTURE(servers);
      const Table::Settings settings = settings_of(rows, 3, true);
      SavedTable whole(settings), joined(settings);
      Parts parts(settings, servers), others(settings, 5);
      std::mt19937 random(1);
      std::vector<std::unique_ptr<File>> files;
      std::vector<TableFiles::Part> saved;
      if (touched) update(whole, parts, random);
      for (std::size_t s = 0; s < servers; ++s) {
        files.push_back(std::make_unique<File>("base" + std::to_string(s)));
        files.push_back(std::make_unique<File>("changes" + std::to_string(s)));
        const auto save = touched ? &TableFiles::save_touched : &TableFiles::save_tracked;
        (*parts.tables[s].*save)(files[2 * s]->path, "kind", true, {}, true);
      }
      for (int step = 0; step < 3; ++step) update(whole, parts, random);
      for (std::size_t s = 0; s < servers; ++s) {
        parts.tables[s]->save_changes(files[2 * s + 1]->path, "kind", true);
        saved.push_back(
            {{files[2 * s]->path, files[2 * s + 1]->path}, "kind", parts.placement.shards(0, s)});
      }
      const auto all = RowPlacement::Shards().set();
      joined.load(saved, all);
      CHECK(joined.digest() == whole.digest());
      CHECK(joined.steps() == whole.steps());
      for (const auto& other : others.tables) other->load(saved, all);
      check_same(whole, others);
    }
  }
}

TEST_CASE("parts of which one is missing, or two overlap, load nothing") {
  const Table::Settings settings = settings_of(700, 3, true);
  SavedTable whole(settings);
  Parts parts(settings, 3);
  std::mt19937 random(1);
  update(whole, parts, random);
  const Table::Digest before = whole.digest();
  const File files[] = {File("0"), File("1"), File("2")};
  std::vector<TableFiles::Part> saved;
  for (std::size_t s = 0; s < 3; ++s) {
    parts.tables[s]->save(files[s].path, "kind");
    saved.push_back({{files[s].path}, "kind", parts.placement.shards(0, s)});
  }
  const auto all = RowPlacement::Shards().set();
  const auto fails = [&](const std::vector<TableFiles::Part>& given, const char* why) {
    CHECK_THROWS_WITH_AS(whole.load(given, all), doctest::Contains(why), Error);
    CHECK(whole.digest() == before);
  };
  fails({saved[0], saved[2]}, "no file has shards 1, 4, 7, 10 and 81 more of table 't'; load");
  fails({saved[0], saved[1], saved[1], saved[2]},
        "has shards 1, 4, 7, 10 and 81 more of table 't', which another file has too");
  fails({}, "needs a file to load");
  auto lies = saved;  // about which shards are in the file
  std::swap(lies[0].shards, lies[1].shards);
  fails(lies, "has id 0 of table 't', whose shard, 0, is said to be elsewhere");
  lies = saved;
  lies[1].description = "other";
  fails(lies, "is of another table than table 't': kind, and not other");
  CHECK_THROWS_WITH_AS(
      whole.load({files[2].path}, "kind"),
      doctest::Contains("has 232 rows, table 't' 700: not those of shards 0, 1, 3, 4"), Error);
  // A server's own are enough for it.
  parts.tables[1]->load({saved[1]}, all);
}

TEST_CASE("a table that grows is whole again from its parts, however many servers had it") {
  Table::Settings settings = settings_of(0, 2, true);
  settings.max_bytes = 1 << 18;
  Table::Settings less = settings;
  less.max_bytes = 1 << 17;
  for (const std::size_t servers : {1, 2, 3}) {
    CAPTURE(servers);
    const RowPlacement placement({{true, RowPlacement::kSpread}}, RowPlacement::evenly(servers));
    SavedTable whole(settings), joined(settings);
    std::vector<std::unique_ptr<SavedTable>> tables;
    std::vector<std::unique_ptr<File>> files;
    std::vector<TableFiles::Part> saved;
    // The two that have a row in any table, of which one alone updates it, among them.
    std::vector<std::uint64_t> ids = {0, ~std::uint64_t{0}};
    for (std::uint64_t id = 5; id < 900; id += 3) ids.push_back(id * 0x9E3779B97F4A7C15);
    for (std::size_t s = 0; s < servers; ++s) {
      tables.push_back(std::make_unique<SavedTable>(less));
      for (int step = 0; step < 2; ++step) {
        std::vector<std::uint64_t> own;
        for (const std::uint64_t id : ids) {
          if (placement(0, id) == s) own.push_back(id);
        }
        const std::vector<float> gradients(own.size() * 2, 0.5f);
        tables[s]->update(own.data(), own.size(), gradients.data(), nullptr);
        whole.update(own.data(), own.size(), gradients.data(), nullptr);
      }
      files.push_back(std::make_unique<File>("grows" + std::to_string(s)));
      tables[s]->save(files[s]->path, "kind");
      saved.push_back({{files[s]->path},
                       "kind",
                       placement.shards(0, s),
                       tables[s]->growth().statistics().capacity});
    }
    joined.load(saved, RowPlacement::Shards().set());
    CHECK(joined.digest() == whole.digest());
    CHECK(joined.growth().statistics().rows == whole.growth().statistics().rows);
    // And on five servers, each of its own shards.
    const RowPlacement five({{true, RowPlacement::kSpread}}, RowPlacement::evenly(5));
    Table::Digest sum{};
    for (std::size_t s = 0; s < 5; ++s) {
      SavedTable part(less);
      part.load(saved, five.shards(0, s));
      for (const std::uint64_t id : part.ids()) {
        const bool always = id == 0 || id == ~std::uint64_t{0};
        CHECK((always || five(0, id) == s));
      }
      const Table::Digest of = part.digest();
      for (std::size_t i = 0; i < 2; ++i) sum[i] += of[i];
    }
    CHECK(sum == whole.digest());
  }
}

TEST_CASE("rows of parts are as old in the whole as they were") {
  Table::Settings settings = settings_of(0, 2, true);
  settings.max_bytes = 1 << 17;
  settings.evict = "age";
  Table::Settings large = settings;
  large.max_bytes = 1 << 18;
  const RowPlacement placement({{true, RowPlacement::kSpread}}, RowPlacement::evenly(2));
  std::vector<std::unique_ptr<SavedTable>> tables;
  const File files[] = {File("old0"), File("old1")};
  std::vector<TableFiles::Part> saved;
  std::vector<std::uint64_t> young[2], old[2];
  for (std::size_t s = 0; s < 2; ++s) {
    tables.push_back(std::make_unique<SavedTable>(settings));
    const std::size_t capacity = tables[s]->growth().statistics().capacity;
    const auto touch = [&](std::uint64_t begin, std::size_t n, std::vector<std::uint64_t>& to) {
      for (std::uint64_t id = begin; n > 0; ++id) {
        if (placement(0, id) != s) continue;
        --n;
        const float gradient[] = {1, 1};
        tables[s]->update(&id, 1, gradient, nullptr);
        to.push_back(id);
      }
    };
    // One server has had many more updates.
    for (int again = 0; again < (s == 0 ? 0 : 90); ++again) {
      touch(2'000'000, capacity / 4, young[s]);
    }
    touch(1'000'000, capacity / 4, old[s]);
    for (int again = 0; again < 4; ++again) touch(2'000'000, capacity / 4, young[s]);
    tables[s]->save(files[s].path, "kind");
    saved.push_back({{files[s].path}, "kind", placement.shards(0, s), capacity});
  }
  SavedTable joined(large);
  joined.load(saved, RowPlacement::Shards().set());
  // New ids take the place of old ones first.
  const std::size_t capacity = joined.growth().statistics().capacity;
  for (std::uint64_t id = 5'000'000; id < 5'000'000 + capacity * 9 / 16; ++id) {
    const float gradient[] = {1, 1};
    joined.update(&id, 1, gradient, nullptr);
  }
  std::vector<std::uint64_t> left = joined.ids();
  std::sort(left.begin(), left.end());
  const auto share = [&](std::vector<std::uint64_t> of) {
    std::sort(of.begin(), of.end());
    of.erase(std::unique(of.begin(), of.end()), of.end());
    std::vector<std::uint64_t> both;
    std::set_intersection(of.begin(), of.end(), left.begin(), left.end(), std::back_inserter(both));
    return static_cast<double>(both.size()) / static_cast<double>(of.size());
  };
  for (std::size_t s = 0; s < 2; ++s) {
    CHECK(share(young[s]) > 0.8);
    CHECK(share(old[s]) < 0.7);
  }
}

TEST_CASE("changes of a part go to files by ids") {
  const File all("whole"), changes("changes");
  const Table::Settings settings = settings_of(700, 4, true);
  SavedTable whole(settings);
  Parts parts(settings, 3), again(settings, 3);
  std::mt19937 random(2);
  for (std::size_t s = 0; s < 3; ++s) {
    update(whole, parts, random);
    parts.tables[s]->save_tracked(all.path, "kind", true);
    update(whole, parts, random);
    parts.tables[s]->save_changes(changes.path, "kind", true);
    again.tables[s]->load({all.path, changes.path}, "kind");
    CHECK(again.tables[s]->digest() == parts.tables[s]->digest());
  }
}

TEST_CASE("rows of a part are located by ids") {
  Table::Settings settings = settings_of(700, 4, true);
  SavedTable whole(settings);
  Parts parts(settings, 3);
  SavedTable& part = *parts.tables[1];
  const auto seat = Seat::keep(part.seats());
  Located located;
  located.ids = {1, 4, 257, 509};
  for (const std::uint64_t id : located.ids) REQUIRE(&parts.of(id) == &part);
  part.locate(*seat, located, true);
  part.pull(located);
  std::vector<float> expected(4);
  for (std::size_t i = 0; i < located.ids.size(); ++i) {
    whole.lookup(&located.ids[i], 1, expected.data(), nullptr);
    CHECK(std::equal(expected.begin(), expected.end(), located.values[i]));
  }
}

TEST_CASE("what a part does not have is told") {
  const File own("part");
  Table::Settings settings = settings_of(700, 4, true);
  Parts parts(settings, 3);
  SavedTable& part = *parts.tables[1];
  std::vector<float> values(4);
  const std::uint64_t elsewhere = 257, none = 700;
  REQUIRE(&parts.of(elsewhere) == &part);
  SavedTable& other = *parts.tables[0];
  CHECK_THROWS_WITH_AS(other.lookup(&elsewhere, 1, values.data(), nullptr),
                       doctest::Contains("id 257 of table 't' has its row elsewhere: here are 86"),
                       Error);
  CHECK_THROWS_WITH_AS(other.lookup(&none, 1, values.data(), nullptr),
                       doctest::Contains("which has rows 0 to 699"), Error);
  CHECK_THROWS_WITH_AS(part.in_place(), doctest::Contains("has some of its rows here"), Error);
  part.save(own.path, "kind");
  CHECK_THROWS_WITH_AS(other.load({own.path}, "kind"), doctest::Contains("has 0 rows, table 't'"),
                       Error);
  settings.rows = 0;
  settings.max_bytes = std::size_t{1} << 20;
  settings.shards = parts.placement.shards(0, 1);
  CHECK_THROWS_WITH_AS(Table{settings}, doctest::Contains("grows, so it has all shards"), Error);
}
