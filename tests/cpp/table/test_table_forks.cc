// Tables in the children of forks: usable where nobody else had something of them, and else
// refused, wherever the others were.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__SANITIZE_THREAD__)  // which does not follow forks

#include <atomic>
#include <cstdio>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/table/table.h"

using namespace leashed;

namespace {

constexpr std::size_t kBatch = 40;

Table::Settings settings(bool grows) {
  return {.name = "t",
          .dim = 2,
          .rows = grows ? std::size_t{0} : 100'000,
          .max_bytes = grows ? std::size_t{1} << 20 : 0,
          .initial = {"zeros"},
          .rule = {"sgd", {{"lr", 1}}},
          .staleness = {"none"},
          .evict = grows ? "age" : "none"};
}

// What a child with an exit status of 0 has done: one that hangs is ended by its alarm.
int status_of_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(120);
    bool good = false;
    try {
      good = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

std::vector<std::uint64_t> ids_from(std::uint64_t first) {
  std::vector<std::uint64_t> ids(kBatch);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

RowPublication update(Table& table, std::uint64_t first, const Table::Watch& watch = {}) {
  const std::vector<std::uint64_t> ids = ids_from(first);
  const std::vector<float> ones(2 * kBatch, 1);
  return table.update(ids.data(), kBatch, ones.data(), nullptr, watch);
}

float value_of(Table& table, std::uint64_t id) {
  float values[2];
  table.lookup(&id, 1, values, nullptr);
  return values[0];
}

bool is_refused(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

// All that takes a seat or waits for one.
bool refuses_all(Table& table) {
  return is_refused([&] { value_of(table, 1); }) && is_refused([&] { update(table, 1); }) &&
         is_refused([&] { table.ids(); }) && is_refused([&] { table.statistics(); }) &&
         is_refused([&] { table.save("/nowhere/table", ""); }) &&
         is_refused([&] { table.save_tracked("/nowhere/table", "", false); }) &&
         is_refused([&] { table.tracks(); }) && is_refused([&] { Table::Seat::keep(table); });
}

// More new ids than there is room for all get rows, one batch after the other.
bool evicts_and_admits(Table& table) {
  for (std::uint64_t first = 1'000'000; first < 1'200'000; first += kBatch) {
    if (update(table, first).applied != kBatch) return false;
  }
  return true;
}

bool works(Table& table) {
  if (value_of(table, 1) != -1 || update(table, 1).applied != kBatch) return false;
  if (value_of(table, 1) != -2) return false;
  return !table.grows() || evicts_and_admits(table);
}

// Another thread within `call`, which stops where it asks for signals.
class Within {
 public:
  explicit Within(const std::function<void(const Table::Watch&)>& call)
      : thread_([this, call] {
          call([this] {
            if (!told_) inside_.count_down();
            told_ = true;
            goes_on_.wait();
          });
        }) {
    inside_.wait();
  }
  ~Within() {
    goes_on_.count_down();
    thread_.join();
  }

 private:
  std::latch inside_{1}, goes_on_{1};
  bool told_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a child of a fork has a table of its own, where nobody was using it") {
  for (const bool grows : {false, true}) {
    CAPTURE(grows);
    Table table(settings(grows));
    update(table, 1);
    // Threads that have used it, and are idle or have ended.
    std::latch used{1}, ends{1};
    std::thread idle([&] {
      value_of(table, 1);
      used.count_down();
      ends.wait();
    });
    used.wait();
    CHECK(status_of_child([&] { return works(table); }) == 0);
    CHECK(status_of_child([&] {
            return status_of_child([&] { return works(table); }) == 0 && works(table);
          }) == 0);
    // Several threads of the child come at once.
    CHECK(status_of_child([&] {
            std::vector<std::thread> threads;
            std::atomic<int> good = 0;
            for (int i = 0; i < 4; ++i) {
              threads.emplace_back([&] { good += value_of(table, 1) == -1; });
            }
            for (std::thread& thread : threads) thread.join();
            return good == 4 && works(table);
          }) == 0);
    CHECK(value_of(table, 1) == -1);
    CHECK(works(table));
    ends.count_down();
    idle.join();
  }
}

TEST_CASE("in a child of a fork a table that another thread was using is refused, and goes") {
  const std::string path = "/tmp/leashed-" + std::to_string(getpid()) + "-forks";
  for (const bool grows : {false, true}) {
    auto table = std::make_unique<Table>(settings(grows));
    update(*table, 1);
    using Call = std::function<void(const Table::Watch&)>;
    const Call calls[] = {
        [&](const Table::Watch& watch) {
          const std::uint64_t id = 1;
          float values[2];
          table->lookup(&id, 1, values, nullptr, watch);
        },
        [&](const Table::Watch& watch) { update(*table, 1, watch); },
        [&](const Table::Watch& watch) { table->ids(watch); },
        [&](const Table::Watch& watch) { table->save(path, "", watch); },
        [&](const Table::Watch& watch) { table->save_tracked(path, "", false, watch); },
    };
    for (const Call& call : calls) {
      if (!grows && &call == &calls[2]) continue;  // which looks at no signals
      CAPTURE(grows);
      CAPTURE(&call - calls);
      const Within within(call);
      CHECK(status_of_child([&] {
              if (!refuses_all(*table)) return false;
              // Neither in a child of its own, nor for a thread that has a dead one's memory.
              bool refused = false;
              std::thread([&] { refused = refuses_all(*table); }).join();
              if (!refused || status_of_child([&] { return refuses_all(*table); }) != 0) {
                return false;
              }
              table.reset();
              return true;
            }) == 0);
    }
    CHECK(value_of(*table, 1) == -2);
  }
  std::remove(path.c_str());
}

TEST_CASE("in a child of a fork a table that a training had is refused, also when that goes") {
  for (const bool grows : {false, true}) {
    Table table(settings(grows));
    update(table, 1);
    std::unique_ptr<Table::Seat> kept = Table::Seat::keep(table);
    CHECK(status_of_child([&] {
            if (!refuses_all(table)) return false;
            kept.reset();
            return refuses_all(table);
          }) == 0);
    kept.reset();
    CHECK(status_of_child([&] { return works(table); }) == 0);
  }
}

TEST_CASE("a table that is used by the thread that forks goes on in the child") {
  for (const bool grows : {false, true}) {
    Table table(settings(grows));
    update(table, 1);
    bool forked = false;
    const auto forks_within = [&] {
      if (forked) return;
      forked = true;
      CHECK(status_of_child([&] {
              return value_of(table, 1) == -1 && update(table, 1).applied == kBatch &&
                     value_of(table, 1) == -2;
            }) == 0);
    };
    update(table, 1, forks_within);
    CHECK(forked);
    CHECK(value_of(table, 1) == -2);

    // The child comes out of the call that it was forked in.
    const pid_t parent = getpid();
    int status = -1;
    forked = false;
    update(table, 1, [&] {
      if (forked) return;
      forked = true;
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        alarm(120);
      } else {
        REQUIRE(waitpid(child, &status, 0) == child);
      }
    });
    if (getpid() != parent) {
      const bool good = value_of(table, 1) == -3 && (!grows || evicts_and_admits(table));
      _exit(good ? 0 : 1);
    }
    CHECK(status == 0);
    CHECK(value_of(table, 1) == -3);
  }
}

TEST_CASE("who waits for a table when a handler forks is told in the child, and does not wait on") {
  const std::string path = "/tmp/leashed-" + std::to_string(getpid()) + "-waits";
  Table table(settings(true));
  update(table, 1);
  const pid_t parent = getpid();
  int status = -1;
  bool refused = false;
  {
    auto within = std::make_unique<Within>(
        [&](const Table::Watch& watch) { table.save_tracked(path, "", false, watch); });
    refused = is_refused([&] {
      bool forked = false;
      table.tracks([&] {  // waits for the one who saves
        if (forked) return;
        forked = true;
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
          alarm(120);
          return;
        }
        REQUIRE(waitpid(child, &status, 0) == child);
        within.reset();
      });
    });
    if (getpid() != parent) _exit(refused ? 0 : 1);
  }
  CHECK_FALSE(refused);
  CHECK(status == 0);
  std::remove(path.c_str());
}

#endif
