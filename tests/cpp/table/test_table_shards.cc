// Fixed tables of which several processes have a part each: by ids they are one table.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
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
