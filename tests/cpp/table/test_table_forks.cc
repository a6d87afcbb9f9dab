// Tables in the children of forks: usable where nobody else had something of them, and else
// refused, wherever the others were.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

// ThreadSanitizer does not follow forks, and qemu's user mode ends a child that starts a thread.
#if !defined(__SANITIZE_THREAD__) && !defined(LEASHED_EMULATED)

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/table/saving.h"

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

RowPublication update(SavedTable& table, std::uint64_t first, const Table::Watch& watch = {}) {
  const std::vector<std::uint64_t> ids = ids_from(first);
  const std::vector<float> ones(2 * kBatch, 1);
  return table.update(ids.data(), kBatch, ones.data(), nullptr, watch);
}

float value_of(SavedTable& table, std::uint64_t id) {
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

// Where the test's files are.
class Folder {
 public:
  Folder() { std::filesystem::create_directory(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ / name; }
  // That of all that is not complete.
  std::uintmax_t size_of_partial() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (entry.path().string().find(".partial") != std::string::npos) return entry.file_size();
    }
    return 0;
  }

 private:
  const std::filesystem::path path_ = "/tmp/leashed-" + std::to_string(getpid()) + "-forks";
};

// Forks once, where it is asked for: the child returns, and the parent when that has ended.
class ForksOnce {
 public:
  void operator()() {
    if (forked_) return;
    forked_ = true;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(120);
    } else {
      REQUIRE(waitpid(child, &status_, 0) == child);
    }
  }
  bool here() const { return getpid() != parent_; }
  int status() const { return status_; }

 private:
  const pid_t parent_ = getpid();
  bool forked_ = false;
  int status_ = -1;
};

// All that takes a seat or waits for one. `path`: of a file of the table.
bool refuses_all(SavedTable& table, const std::string& path) {
  return is_refused([&] { value_of(table, 1); }) && is_refused([&] { update(table, 1); }) &&
         is_refused([&] { table.ids(); }) && is_refused([&] { table.growth().statistics(); }) &&
         is_refused([&] { table.save("/nowhere/table", ""); }) &&
         is_refused([&] { table.save_tracked("/nowhere/table", "", false); }) &&
         is_refused([&] { table.load({path}, ""); }) && is_refused([&] { table.track(); }) &&
         is_refused([&] { table.tracks(); }) && is_refused([&] { Seat::keep(table.seats()); });
}

// More new ids than there is room for all get rows, one batch after the other.
bool evicts_and_admits(SavedTable& table) {
  for (std::uint64_t first = 1'000'000; first < 1'200'000; first += kBatch) {
    if (update(table, first).applied != kBatch) return false;
  }
  return true;
}

bool works(SavedTable& table) {
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
    SavedTable table(settings(grows));
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
  const Folder folder;
  const std::string path = folder.file("saved"), whole = folder.file("whole");
  for (const bool grows : {false, true}) {
    auto table = std::make_unique<SavedTable>(settings(grows));
    update(*table, 1);
    table->save(whole, "");
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
              if (!refuses_all(*table, whole)) return false;
              // Neither in a child of its own, nor for a thread that has a dead one's memory.
              bool refused = false;
              std::thread([&] { refused = refuses_all(*table, whole); }).join();
              if (!refused || status_of_child([&] { return refuses_all(*table, whole); }) != 0) {
                return false;
              }
              table.reset();
              return true;
            }) == 0);
    }
    CHECK(value_of(*table, 1) == -2);
  }
}

TEST_CASE("in a child of a fork a table that a training had is refused, also when that goes") {
  const Folder folder;
  const std::string path = folder.file("whole");
  for (const bool grows : {false, true}) {
    SavedTable table(settings(grows));
    update(table, 1);
    table.save(path, "");
    std::unique_ptr<Seat> kept = Seat::keep(table.seats());
    CHECK(status_of_child([&] {
            if (!refuses_all(table, path)) return false;
            kept.reset();
            return refuses_all(table, path);
          }) == 0);
    kept.reset();
    CHECK(status_of_child([&] { return works(table); }) == 0);
  }
}

TEST_CASE("a table that is used by the thread that forks goes on in the child") {
  for (const bool grows : {false, true}) {
    SavedTable table(settings(grows));
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
    ForksOnce forks;
    update(table, 1, [&] { forks(); });
    if (forks.here()) {
      const bool good = value_of(table, 1) == -3 && (!grows || evicts_and_admits(table));
      _exit(good ? 0 : 1);
    }
    CHECK(forks.status() == 0);
    CHECK(value_of(table, 1) == -3);
  }
}

TEST_CASE(
    "a seat that the calling thread keeps for itself goes on in the child, as within a call") {
  for (const bool grows : {false, true}) {
    SavedTable table(settings(grows));
    update(table, 1);
    std::unique_ptr<Seat> kept = Seat::keep(table.seats(), true);
    CHECK(status_of_child([&] {
            if (value_of(table, 1) != -1) return false;
            kept.reset();
            return works(table);
          }) == 0);
    CHECK(status_of_child([&] {
            bool good = false;
            std::thread([&] { good = value_of(table, 1) == -1; }).join();
            return good;
          }) == 0);
  }
}

namespace {

// Each row gets another value, over several of a file's blocks.
void update_all(SavedTable& table) {
  const std::size_t n = table.settings().rows;
  std::vector<std::uint64_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> gradients(2 * n);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i % 1000);
  table.update(ids.data(), n, gradients.data(), nullptr);
}

std::vector<float> all_values(SavedTable& table) {
  const std::size_t n = table.settings().rows;
  std::vector<std::uint64_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> values(2 * n);
  table.lookup(ids.data(), n, values.data(), nullptr);
  return values;
}

}  // namespace

TEST_CASE("a file that is being written when a handler forks is the parent's alone") {
  const Folder folder;
  const std::string path = folder.file("saved"), whole = folder.file("whole");
  SavedTable table(settings(false));
  using Call = std::function<void(const Table::Watch&)>;
  const Call calls[] = {
      [&](const Table::Watch& watch) { table.save(path, "", watch); },
      [&](const Table::Watch& watch) { table.save_tracked(path, "", true, watch); },
      [&](const Table::Watch& watch) { table.save_changes(path, "", true, watch); },
  };
  for (const Call& call : calls) {
    for (const bool raises : {false, true}) {
      CAPTURE(&call - calls);
      CAPTURE(raises);
      const bool follows = &call == &calls[2];
      update_all(table);
      if (follows) table.save_tracked(whole, "", true);
      update_all(table);
      const std::vector<float> wanted = all_values(table);
      ForksOnce forks;
      const auto within = [&] {
        if (folder.size_of_partial() < 1 << 20) return;
        forks();
        if (raises && forks.here()) throw std::runtime_error("ends");
      };
      bool refused = false;
      try {
        refused = is_refused([&] { call(within); });
      } catch (const std::runtime_error&) {
        refused = raises;
      }
      if (forks.here()) {
        const bool good = refused && folder.size_of_partial() > 0 && all_values(table) == wanted;
        table.save(folder.file("child"), "");
        _exit(good ? 0 : 1);
      }
      CHECK_FALSE(refused);
      CHECK(forks.status() == 0);
      CHECK(folder.size_of_partial() == 0);
      SavedTable loaded(settings(false));
      loaded.load(follows ? std::vector{whole, path} : std::vector{path}, "");
      CHECK(all_values(loaded) == wanted);
    }
  }
}

TEST_CASE("parent and child load all of a file that was being read when a handler forked") {
  const Folder folder;
  const std::string path = folder.file("saved");
  SavedTable table(settings(false));
  update_all(table);
  const std::vector<float> wanted = all_values(table);
  table.save(path, "");
  SavedTable loaded(settings(false));
  ForksOnce forks;
  std::size_t asked = 0;
  loaded.load({path}, "", [&] {
    if (++asked == 50) forks();
  });
  if (forks.here()) _exit(all_values(loaded) == wanted ? 0 : 1);
  CHECK(forks.status() == 0);
  CHECK(all_values(loaded) == wanted);
}

TEST_CASE("who waits for a table when a handler forks is told in the child, and does not wait on") {
  const std::string path = "/tmp/leashed-" + std::to_string(getpid()) + "-waits";
  SavedTable table(settings(true));
  update(table, 1);
  ForksOnce forks;
  bool refused = false;
  {
    auto within = std::make_unique<Within>(
        [&](const Table::Watch& watch) { table.save_tracked(path, "", false, watch); });
    refused = is_refused([&] {
      table.tracks([&] {  // waits for the one who saves
        forks();
        if (!forks.here()) within.reset();
      });
    });
    if (forks.here()) _exit(refused ? 0 : 1);
  }
  CHECK_FALSE(refused);
  CHECK(forks.status() == 0);
  std::remove(path.c_str());
}

#endif
