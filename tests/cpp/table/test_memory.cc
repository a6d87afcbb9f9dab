// Tables where there is no memory left, wherever it is asked for: what failed has changed nothing.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "leashed/table/id_index.h"
#include "leashed/table/saving.h"
#include "replaced_new.h"

namespace {

// Allocations until one fails; far away where none is to.
constexpr long kNever = 1L << 60;
std::atomic<long> allocations_left{kNever};

bool fails() { return allocations_left.fetch_sub(1, std::memory_order_relaxed) == 0; }

void allocating() {
  if (fails()) throw std::bad_alloc();
}

}  // namespace

// What AlignedArray asks for.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  void* memory = nullptr;
  return fails() || posix_memalign(&memory, alignment, bytes) != 0 ? nullptr : memory;
}

using namespace leashed;

namespace {

Table::Settings growing() {
  return {.name = "t",
          .dim = 3,
          .max_bytes = 1 << 18,
          .initial = {"normal", {{"sigma", 1}}},
          .rule = {"sgd", {{"lr", 1}}},
          .staleness = {"none"},
          .admit_after = 2,
          .evict = "age"};
}

// Calls until it does not fail any more, each time with one allocation more; how often it failed.
template <class Call, class Check>
long until_through(const Call& call, const Check& check) {
  for (long failed = 0;; ++failed) {
    allocations_left.store(failed, std::memory_order_relaxed);
    try {
      call();
      allocations_left.store(kNever, std::memory_order_relaxed);
      return failed;
    } catch (const std::bad_alloc&) {
      allocations_left.store(kNever, std::memory_order_relaxed);
    }
    check();
  }
}

// By a thread that has inserted nothing before.
template <class Work>
void in_new_thread(const Work& work) {
  std::thread(work).join();
}

std::vector<float> values_of(SavedTable& table, const std::vector<std::uint64_t>& ids) {
  std::vector<float> values(ids.size() * table.dim());
  table.lookup(ids.data(), ids.size(), values.data(), nullptr);
  return values;
}

}  // namespace

TEST_CASE("an update without memory has counted no id and given none a row") {
  SavedTable table(growing());
  const std::vector<std::uint64_t> ids = {7, 8, 7, 9};
  const std::vector<float> gradients(ids.size() * 3, 1.0f);
  const long failed =
      until_through([&] { table.update(ids.data(), ids.size(), gradients.data(), nullptr); },
                    [&] {
                      const TableStatistics s = table.growth().statistics();
                      CHECK(s.asked == 0);
                      CHECK(table.steps() == 0);
                      CHECK(s.updates.unadmitted == 0);
                    });
  CHECK(failed > 3);
  CHECK(table.growth().statistics().updates.unadmitted == 3);  // so none had been sighted before
}

TEST_CASE("an update without memory to begin a row has counted no id") {
  SavedTable table(growing());
  const auto update = [&](const std::vector<std::uint64_t>& ids) {
    const std::vector<float> gradients(ids.size() * 3, 1.0f);
    table.update(ids.data(), ids.size(), gradients.data(), nullptr);
  };
  update({7});
  in_new_thread([&] {
    // 8 comes for the first time, before 7 gets a row.
    const std::vector<std::uint64_t> both = {8, 7};
    const long failed = until_through([&] { update(both); },
                                      [&] { CHECK(table.growth().statistics().asked == 1); });
    CHECK(failed > 1);
  });
  CHECK(table.growth().statistics().updates.unadmitted == 2);
  CHECK(table.growth().statistics().updates.applied == 1);
}

TEST_CASE(
    "an insertion without memory throws and has changed nothing; those that follow need none") {
  const IdIndex::Settings settings{.rows = 32, .shard_bits = 0, .reserve = 4};
  Rows rows(IdIndex::rows_of(settings), 3);
  RowHolds holds(rows.count(), 1);
  IdIndex index(
      rows, settings, [](std::uint64_t, float* values) { std::fill_n(values, 3, 1.0f); }, &holds,
      [](const RowHead&, const float*) { return 0.0f; });
  const auto insert = [&](std::uint64_t id) {
    const std::uint32_t row = index.insert(id, 0).row;
    if (row != IdIndex::kNone) holds.release(row);
  };
  in_new_thread([&] {
    const long failed =
        until_through([&] { insert(7); },
                      [&] {
                        CHECK(index.find(7) == IdIndex::kNone);
                        const IdIndex::Counts counts = index.counts();
                        CHECK(counts.inserted + counts.deferred + counts.refused == 0);
                        CHECK(counts.live == 0);
                        CHECK(counts.rows == 2);
                      });
    CHECK(failed == 1);
    CHECK(index.find(7) != IdIndex::kNone);
    allocations_left = 0;
    for (std::uint64_t id = 8; id < 100; ++id) insert(id);
    const long left = allocations_left.exchange(kNever);
    CHECK(left == 0);
    CHECK(index.counts().evicted > 0);
    CHECK(index.counts().rebuilt > 0);
  });
}

TEST_CASE("a load without memory leaves the rows that were there") {
  const std::string path = "/tmp/leashed-" + std::to_string(getpid()) + "-memory";
  for (const bool grows : {false, true}) {
    CAPTURE(grows);
    Table::Settings settings = growing();
    settings.admit_after = 1;
    if (!grows) {
      settings.rows = 50;
      settings.evict = "none";
    }
    SavedTable saved(settings), table(settings);
    const std::vector<std::uint64_t> ids = {1, 2, 3};
    const std::vector<float> gradients(ids.size() * 3, 1.0f);
    saved.update(ids.data(), ids.size(), gradients.data(), nullptr);
    saved.save(path, "one");
    const std::vector<std::uint64_t> others = {3, 4};
    table.update(others.data(), others.size(), gradients.data(), nullptr);
    const std::vector<std::uint64_t> all = {1, 2, 3, 4};
    const std::vector<float> before = values_of(table, all);
    in_new_thread([&] {
      const long failed = until_through([&] { table.load({path}, "one"); },
                                        [&] {
                                          CHECK(values_of(table, all) == before);
                                          CHECK(table.steps() == 1);
                                        });
      CHECK(failed > 1);
    });
    CHECK(values_of(table, all) == values_of(saved, all));
  }
  std::remove(path.c_str());
}
