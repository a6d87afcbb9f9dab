// A growing table in the long run: many more ids than rows, by Zipf's law.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/data/zipf.h"
#include "leashed/table/combine.h"
#include "leashed/table/table.h"

using namespace leashed;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr std::size_t kThreads = 8, kBatch = 128, kDim = 4;

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// As a training's worker has it: the next batch is found before this one is updated. Gradients are
// 0, so an update writes the id's stamp that it has read: what the row began with.
class Worker {
 public:
  Worker(Table& table, std::uint64_t ids, std::uint64_t seed)
      : table_(table),
        seat_(table.seats()),
        stamp_(table.settings().initial, table.settings().seed, table.settings().number),
        zipf_(1.05, ids),
        random_(seed) {}

  void find_next() {
    std::vector<std::uint64_t> ids(kBatch);
    for (std::uint64_t& id : ids) id = draw();
    std::vector<std::uint32_t> places(kBatch);
    combiner_.begin(kBatch, next_->ids);
    combiner_.add(ids.data(), kBatch, places.data());
    table_.locate(seat_, *next_, true);
    asked += next_->ids.size();
  }
  void pull() {
    std::swap(current_, next_);
    table_.pull(*current_);
    look();
  }
  void push() {
    look();
    const std::vector<float> still(current_->ids.size() * kDim, 0);
    told.add(table_.push(seat_, *current_, still.data(), kDim, 0));
    current_->release();
  }

  RowPublication told;
  std::uint64_t asked = 0, wrong = 0;

 private:
  std::uint64_t draw() {
    while (true) {
      const auto k = zipf_(std::generate_canonical<double, 53>(random_));
      if (k) return *k * 0x9E3779B97F4A7C15;
    }
  }
  void look() {
    float stamp[kDim];
    for (std::size_t i = 0; i < current_->ids.size(); ++i) {
      stamp_(current_->ids[i], stamp, kDim);
      wrong += !std::equal(stamp, stamp + kDim, current_->values[i]);
    }
  }

  Table& table_;
  Seat seat_;
  const Initial stamp_;
  const Zipf zipf_;
  std::mt19937_64 random_;
  Combiner combiner_;
  Located first_, second_;
  Located *current_ = &first_, *next_ = &second_;
};

}  // namespace

// LEASHED_LOOKUPS: how many, over ten times as many ids with room for 1% of them; 100000000 by
// hand.
TEST_CASE("however many ids come, no row has another's stamp, and memory stays below its limit") {
  const char* const asked = std::getenv("LEASHED_LOOKUPS");
  const std::uint64_t lookups = asked ? std::strtoull(asked, nullptr, 10) : 200'000;
  const std::uint64_t ids = 10 * lookups;
  const std::size_t before = resident_bytes();
  const double begin = now();
  Table table({.name = "t",
               .dim = kDim,
               .max_bytes = std::max<std::size_t>(100 * (ids / 100), 100'000),
               .initial = {"normal", {{"sigma", 1}}},
               .rule = {"sgd", {{"lr", 1}}},
               .staleness = {"none"},
               .evict = "age",
               .seed = 5});
  std::optional<Worker> parked;
  SUBCASE("one stands still for good, between pull and push") {
    parked.emplace(table, ids, kThreads);
    parked->find_next();
    parked->pull();
  }
  SUBCASE("nobody stands still") {}
  std::vector<std::thread> threads;
  std::atomic<std::size_t> running{kThreads};
  std::vector<RowPublication> told(kThreads);
  std::vector<std::uint64_t> counted(kThreads), wrong(kThreads);
  for (std::size_t w = 0; w < kThreads; ++w) {
    threads.emplace_back([&, w] {
      Worker worker(table, ids, w);
      worker.find_next();
      // (None is evicted while who has a shard's lock stands still.)
      const std::uint64_t least = lookups / kThreads / kBatch;
      for (std::uint64_t k = 0; k < least || table.growth().statistics().evicted == 0; ++k) {
        worker.pull();
        if (k % 4 != 0) {
          worker.find_next();
          worker.push();
          continue;
        }
        worker.push();
        worker.find_next();
      }
      worker.pull();
      worker.push();
      told[w] = worker.told;
      counted[w] = worker.asked;
      wrong[w] = worker.wrong;
      --running;
    });
  }
  std::size_t most = 0;
  while (running > 0) {
    most = std::max(most, table.growth().statistics().bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (std::thread& thread : threads) thread.join();
  const std::size_t grown = resident_bytes() - std::min(before, resident_bytes());
  RowPublication all;
  std::uint64_t distinct = 0, others = 0;
  if (parked) {
    parked->push();
    all = parked->told;
    distinct = parked->asked;
    others = parked->wrong;
  }
  for (std::size_t w = 0; w < kThreads; ++w) {
    all.add(told[w]);
    distinct += counted[w];
    others += wrong[w];
  }
  const TableStatistics s = table.growth().statistics();
  const std::size_t limit = table.settings().max_bytes;
  MESSAGE(lookups, " look-ups in ", now() - begin, " s: applied ", all.applied, ", deferred ",
          all.deferred, ", refused ", all.refused, ", late ", all.late, "; evicted ", s.evicted,
          ", rows ", s.rows, " of ", s.capacity, ", bytes ", most, " of ", limit, ", resident ",
          grown);
  CHECK(others == 0);
  CHECK(all.applied + all.deferred + all.refused + all.late == distinct);
  CHECK(s.asked == distinct);
  CHECK(s.rows == s.admitted - s.evicted + 2);
  CHECK(s.rows <= s.capacity);
  CHECK(s.evicted > 0);
  CHECK(std::max(most, s.bytes) <= s.most_bytes);
  CHECK(s.most_bytes <= limit);
  // Beside the table: stacks, what threads have their batches in, and the test's own.
  if (!kSanitized) CHECK(grown < limit + (std::size_t{64} << 20));
}
