// The invariants of vector/shared_vector.h: under stress within one process, and with processes
// that are killed at every step and at random moments. LEASHED_KILLS sets how many are (default
// 40):
//   LEASHED_KILLS=200 build/dev/tests/cpp/test_faults -tc="*kill -9*"
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/base/fault.h"
#include "leashed/discipline/participant.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"

using namespace leashed;

namespace {

constexpr std::size_t kLength = 257;
constexpr std::uint64_t kForever = ~std::uint64_t{0};

std::string fresh_name() {
  static int n = 0;
  return "test." + std::to_string(getpid()) + "." + std::to_string(n++);
}

bool exists(const std::string& name) {
  return access(SharedMemory::path_of(name).c_str(), F_OK) == 0;
}

SharedVector make(const std::string& name, std::size_t participants, bool in_place = false) {
  const std::vector<float> zeros(kLength, 0.0f);
  return SharedVector::create(name, zeros.data(), kLength, participants, in_place, "a rule");
}

bool holds_only(const float* values, float expected) {
  return std::all_of(values, values + kLength, [=](float v) { return v == expected; });
}

// θ ← θ + 1 with every gradient of −1.
const Rule& unit_rule() {
  static const auto rule = make_rule({"sgd", {{"lr", 1}}});
  return *rule;
}
const std::vector<float>& unit_gradient() {
  static const std::vector<float> gradient(kLength, -1.0f);
  return gradient;
}

ParticipantSgd participant_of(SharedVector& vector) {
  return ParticipantSgd(vector, kLength, unit_rule(), no_staleness_policy(), kForever);
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const char* part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("what is created can be attached to, and goes with the last participant") {
  const std::string name = fresh_name();
  {
    SharedVector vector = make(name, 2);
    SharedVector other = SharedVector::attach(name);
    CHECK(other.length() == kLength);
    CHECK(other.participants() == 2);
    CHECK(other.description() == "a rule");
    ParticipantSgd here = participant_of(vector), there = participant_of(other);
    for (std::uint64_t t = 0; t < 100; t += 2) {
      CHECK(here.push(unit_gradient().data(), t).published);
      const SharedVector::Participant::Pin view = there.participant().view();
      CHECK(view.t() == t + 1);
      CHECK(holds_only(view.data(), static_cast<float>(t + 1)));
      const Publication result = there.push(unit_gradient().data(), t);
      CHECK(result.published);
      CHECK(result.staleness_compute == 1);
    }
    CHECK(vector.t() == 100);
    CHECK(vector.live() == 1);
    CHECK(vector.pids() == std::vector<pid_t>{getpid(), getpid()});
  }
  CHECK_FALSE(exists(name));
}

TEST_CASE("a view does not change while others are published") {
  const std::string name = fresh_name();
  SharedVector vector = make(name, 1);
  ParticipantSgd trainer = participant_of(vector);
  const auto first = trainer.participant().view();
  const auto second = trainer.participant().view();
  CHECK(says(message_of([&] { trainer.participant().view(); }), "too many views"));
  for (std::uint64_t t = 0; t < 100; ++t) trainer.push(unit_gradient().data(), t);
  CHECK(holds_only(first.data(), 0));
  CHECK(second.t() == 0);
  CHECK(vector.live() == 2);
}

TEST_CASE("in place: every update is counted") {
  const std::string name = fresh_name();
  SharedVector vector = make(name, 1, true);
  ParticipantSgd trainer = participant_of(vector);
  for (std::uint64_t t = 0; t < 100; ++t) {
    CHECK(trainer.push(unit_gradient().data(), t).staleness_compute == 0);
  }
  CHECK(vector.t() == 100);
  CHECK(holds_only(trainer.participant().data(), 100));
}

TEST_CASE("errors say what to do") {
  const std::string name = fresh_name();
  CHECK(says(message_of([&] { SharedVector::attach(name); }), "create it first"));
  CHECK(says(message_of([&] { make("a/b", 1); }), "name must be"));
  CHECK(says(message_of([&] { make(name, 20000); }), "participants must be at most"));
  constexpr std::size_t kWraps = std::size_t{1} << 62;  // times a seat's slots, or its bytes
  for (const bool in_place : {false, true}) {
    CHECK(says(message_of([&] { make(name, kWraps, in_place); }), "participants must be at most"));
  }
  SharedVector vector = make(name, 1);
  CHECK(says(message_of([&] { make(name, 1); }), "exists already and is in use"));
  SharedVector::Participant taken(vector);
  CHECK(says(message_of([&] { SharedVector::Participant another(vector); }), "all 1 participants"));
  const auto adam = make_rule({"adam", {{"lr", 1}, {"beta1", 0}, {"beta2", 0}, {"eps", 1}}});
  CHECK(says(message_of([&] {
               ParticipantSgd t(vector, kLength, *adam, no_staleness_policy(), kForever);
             }),
             "state need"));
}

TEST_CASE("a segment that is truncated, of another version or of something else is refused") {
  const std::string name = fresh_name(), path = SharedMemory::path_of(name);
  const SharedVector vector = make(name, 1);
  const auto altered = [&](std::size_t offset, std::uint64_t value, const char* message) {
    FILE* file = std::fopen(path.c_str(), "r+b");
    std::uint64_t before = 0;
    for (std::uint64_t* v : {&before, &value}) {
      std::fseek(file, static_cast<long>(offset), SEEK_SET);
      REQUIRE((v == &before ? std::fread(v, 8, 1, file) : std::fwrite(v, 8, 1, file)) == 1);
    }
    std::fflush(file);
    CHECK(says(message_of([&] { SharedVector::attach(name); }), message));
    std::fseek(file, static_cast<long>(offset), SEEK_SET);
    REQUIRE(std::fwrite(&before, 8, 1, file) == 1);
    std::fclose(file);
  };
  altered(0, 1, "no leashed vector");
  altered(8, 7, "layout version 7");
  altered(16, 7, "should have 7 bytes");
  altered(24, 7, "damaged");
  constexpr std::uint64_t kWrap = std::uint64_t{1} << 62;  // floats: no bytes, modulo 2^64
  altered(24, kLength + kWrap, "damaged");
  altered(32, 2, "damaged");
  altered(32, 1 + (std::uint64_t{1} << 58), "damaged");
  altered(40, 3, "damaged");
  altered(40, 4 + kWrap, "damaged");
  altered(48, ~std::uint64_t{0} - 63, "damaged");
  altered(128, 4, "damaged");           // the published slot, of 4
  altered(192 + 8, 5, "damaged");       // a pin of a slot that is not
  altered(192 + 64 + 8, 2, "damaged");  // a slot claimed by a seat that is not
  altered(56, 7, "another pid namespace");
  struct stat found {};
  REQUIRE(stat(path.c_str(), &found) == 0);
  for (const off_t size : {found.st_size - 1, off_t{100}, off_t{0}}) {
    REQUIRE(truncate(path.c_str(), size) == 0);
    CHECK(says(message_of([&] { SharedVector::attach(name); }), "truncated"));
  }
  REQUIRE(truncate(path.c_str(), found.st_size) == 0);
}

TEST_CASE("a word that is damaged later ends with an error, not outside the memory") {
  for (const bool in_place : {false, true}) {
    const std::string name = fresh_name();
    SharedVector vector = make(name, 2, in_place), other = SharedVector::attach(name);
    ParticipantSgd trainer = participant_of(vector), second = participant_of(other);
    const auto alter = [&](std::size_t offset, std::uint64_t value) {
      FILE* file = std::fopen(SharedMemory::path_of(name).c_str(), "r+b");
      std::fseek(file, static_cast<long>(offset), SEEK_SET);
      REQUIRE(std::fwrite(&value, 8, 1, file) == 1);
      std::fclose(file);
    };
    for (const std::size_t size : {24, 32, 40, 48}) alter(size, ~std::uint64_t{0});
    CHECK(trainer.push(unit_gradient().data(), 0).published);  // its own copy of the sizes
    CHECK(vector.description() == "a rule");
    CHECK(vector.live() == 1);
    for (std::size_t slot = 0; slot < 8 && !in_place; ++slot) {
      alter(192 + 2 * 64 + 8 * slot, 2);  // all claimed, by one who has not
    }
    if (!in_place) {
      CHECK(says(message_of([&] { trainer.push(unit_gradient().data(), 1); }), "is damaged"));
    }
    alter(128, std::uint64_t{1} << 16 | 0xffff);
    if (in_place) {
      std::uint64_t t = 1;
      CHECK(says(message_of([&] { trainer.participant().count(t); }), "is damaged"));
    } else {
      CHECK(says(message_of([&] { trainer.push(unit_gradient().data(), 1); }), "is damaged"));
      const std::string message = message_of([&] { second.participant().view(); });
      CHECK(says(message, SharedMemory::path_of(name).c_str()));
    }
  }
}

TEST_CASE("a name of another user is refused") {
  if (geteuid() != 0) return;  // only root can give a file away
  const std::string name = fresh_name(), path = SharedMemory::path_of(name);
  const SharedVector vector = make(name, 1);
  REQUIRE(chown(path.c_str(), 12345, 12345) == 0);
  for (const auto& f : {std::function<void()>([&] { SharedVector::attach(name); }),
                        std::function<void()>([&] { make(name, 1); })}) {
    CHECK(says(message_of(f), "belongs to another user (uid 12345)"));
    REQUIRE(seteuid(54321) == 0);
    CHECK(says(message_of(f), "belongs to another user (uid 12345)"));
    REQUIRE(seteuid(0) == 0);
  }
  REQUIRE(chown(path.c_str(), 0, 0) == 0);
}

TEST_CASE("stress: consistent reads, t without gaps, bounded and leak-free") {
  for (const std::size_t writers : {2, 8}) {
    CAPTURE(writers);
    const std::size_t readers = 2, updates = 2000 / writers;
    const std::string name = fresh_name();
    SharedVector vector = make(name, writers + readers);
    // Relaxed: each is read after the threads are joined, or only as a hint.
    std::atomic<bool> consistent{true}, monotonic{true}, done{false};
    std::atomic<std::uint64_t> published{0};
    const auto note = [](std::atomic<bool>& flag, bool holds) {
      if (!holds) flag.store(false, std::memory_order_relaxed);
    };
    {
      std::vector<std::jthread> reading, writing;
      for (std::size_t r = 0; r < readers; ++r) {
        reading.emplace_back([&] {
          SharedVector::Participant participant(vector);
          std::uint64_t last = 0;
          while (!done.load(std::memory_order_relaxed)) {
            const auto view = participant.view();
            note(consistent, holds_only(view.data(), static_cast<float>(view.t())));
            note(monotonic, view.t() >= last);
            last = view.t();
            std::this_thread::yield();
          }
        });
      }
      for (std::size_t w = 0; w < writers; ++w) {
        writing.emplace_back([&] {
          ParticipantSgd trainer = participant_of(vector);
          for (std::size_t i = 0; i < updates; ++i) {
            std::uint64_t t_read = 0;
            {
              const auto view = trainer.participant().view();
              note(consistent, holds_only(view.data(), static_cast<float>(view.t())));
              t_read = view.t();
            }
            published.fetch_add(trainer.push(unit_gradient().data(), t_read).published,
                                std::memory_order_relaxed);
          }
        });
      }
      writing.clear();
      done.store(true, std::memory_order_relaxed);
    }
    CHECK(consistent);
    CHECK(monotonic);
    CHECK(published == writers * updates);
    CHECK(vector.t() == writers * updates);
    CHECK(vector.live() == 1);
    SharedVector::Participant last(vector);
    CHECK(holds_only(last.view().data(), static_cast<float>(writers * updates)));
  }
}

#if !defined(__SANITIZE_THREAD__)  // which does not follow forks

namespace {

// What the processes of one test tell each other, beside the vector.
struct Board {
  std::atomic<bool> stop;
  std::atomic<bool> inconsistent;
  std::atomic<std::uint64_t> published[8];
};

Board* new_board() {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Board{};
}

const char* fatal_step = nullptr;
int passes_left = 0;

// kill -9 at the fatal step, after so many passes.
void die_there(const char* step) {
  if (std::strcmp(step, fatal_step) == 0 && passes_left-- == 0) raise(SIGKILL);
}

pid_t spawn(const std::function<void()>& work) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    try {
      work();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  return pid;
}

// A process that trains until it is told to stop, or is killed.
pid_t spawn_trainer(const std::string& name, Board& board, std::size_t i,
                    const char* step = nullptr, int passes = 0) {
  return spawn([&, i, step, passes] {
    fatal_step = step;
    passes_left = passes;
    if (step) fault_hook = die_there;
    SharedVector vector = SharedVector::attach(name);
    ParticipantSgd trainer = participant_of(vector);
    while (!board.stop) {
      std::uint64_t t_read = 0;
      {
        const auto view = trainer.participant().view();
        t_read = view.t();
        if (!holds_only(view.data(), static_cast<float>(t_read))) board.inconsistent = true;
      }
      if (trainer.push(unit_gradient().data(), t_read).published) ++board.published[i];
    }
  });
}

// How it ended: 0, an exit status, or minus the signal.
int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A process that finds dead participants, and is killed at that step.
int reap_until(const std::string& name, const char* step) {
  return wait_for(spawn([&] {
    fatal_step = step;
    passes_left = 0;
    fault_hook = die_there;
    SharedVector::attach(name).reap();
  }));
}

struct Place {
  const char* name;
  enum { once, repeated, reaping } when;
};
constexpr Place kSteps[] = {
    {"joined", Place::once},        {"announced", Place::repeated}, {"pinned", Place::repeated},
    {"released", Place::repeated},  {"claimed", Place::repeated},   {"filled", Place::repeated},
    {"published", Place::repeated}, {"recycled", Place::repeated},  {"taken over", Place::reaping},
    {"unpinned", Place::reaping},   {"cleared", Place::reaping},
};

// Four processes train; one is killed, at a step or at a random moment, and another takes its
// place. At the end the name is gone.
void survive(const Place* step, std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::string name = fresh_name();
  Board& board = *new_board();
  constexpr std::size_t kProcesses = 4;
  std::vector<pid_t> pids;
  {
    SharedVector vector = make(name, kProcesses + 1);
    for (std::size_t i = 0; i + 1 < kProcesses; ++i) {
      pids.push_back(spawn_trainer(name, board, i));
    }
    const bool by_itself = step && step->when != Place::reaping;
    const int passes = by_itself && step->when == Place::repeated ? below(300) : 0;
    const pid_t victim =
        spawn_trainer(name, board, kProcesses - 1, by_itself ? step->name : nullptr, passes);
    if (step && step->when == Place::reaping) {  // or another that joins would reap the victim
      for (std::size_t i = 0; i < kProcesses; ++i) {
        while (board.published[i] == 0) sleep_ms(1);
      }
    }
    sleep_ms(5 + below(25));
    if (!by_itself) kill(victim, SIGKILL);
    CHECK(wait_for(victim) == -SIGKILL);
    if (step && step->when == Place::reaping) CHECK(reap_until(name, step->name) == -SIGKILL);
    const std::uint64_t then = vector.t();
    pids.push_back(spawn_trainer(name, board, kProcesses));  // in the dead one's place
    for (int waited = 0; vector.t() < then + 100; ++waited) {
      REQUIRE(waited < 20000);
      sleep_ms(1);
    }
    board.stop = true;
    for (const pid_t pid : pids) CHECK(wait_for(pid) == 0);

    CHECK_FALSE(board.inconsistent);
    std::uint64_t published = 0;
    for (const auto& count : board.published) published += count;
    CHECK(vector.t() >= published);
    CHECK(vector.t() <= published + 1);  // the victim's last
    vector.reap();
    CHECK(vector.pids().empty());
    CHECK(vector.live() == 1);  // nothing leaked
    ParticipantSgd last = participant_of(vector);
    CHECK(holds_only(last.participant().view().data(), static_cast<float>(vector.t())));
    for (std::uint64_t t = 0; t < 100; ++t) last.push(unit_gradient().data(), vector.t());
    CHECK(holds_only(last.participant().view().data(), static_cast<float>(vector.t())));
  }
  CHECK_FALSE(exists(name));
  munmap(&board, sizeof(Board));
}

}  // namespace

TEST_CASE("kill -9 neither corrupts nor blocks: at every step, and at random moments") {
  const char* wanted = std::getenv("LEASHED_KILLS");
  const std::size_t kills = wanted ? std::strtoul(wanted, nullptr, 10) : 40;
  std::mt19937 random(static_cast<unsigned>(getpid()));
  for (std::size_t i = 0; i < kills; ++i) {
    const Place* step = i % 2 ? &kSteps[i / 2 % std::size(kSteps)] : nullptr;
    CAPTURE(i);
    const std::string where = step ? step->name : "a random moment";
    CAPTURE(where);
    survive(step, random);
  }
}

TEST_CASE("who calls exec is as gone as who is killed, also where it has not ended") {
  const std::string name = fresh_name();
  SharedVector vector = make(name, 1);
  int ready[2], go[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  REQUIRE(pipe2(go, O_CLOEXEC) == 0);
  char byte;
  const pid_t child = spawn([&] {
    SharedVector own = SharedVector::attach(name);
    ParticipantSgd trainer = participant_of(own);
    trainer.push(unit_gradient().data(), 0);
    const auto view = trainer.participant().view();
    const auto draft = trainer.participant().claim();
    REQUIRE(write(ready[1], "", 1) == 1);
    REQUIRE(read(go[0], &byte, 1) == 1);
    execl("/bin/sleep", "sleep", "60", nullptr);
  });
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(vector.pids() == std::vector<pid_t>{child});
  CHECK(says(message_of([&] { SharedVector::Participant another(vector); }), "all 1"));
  CHECK(vector.live() == 2);
  REQUIRE(write(go[1], "", 1) == 1);
  close(ready[1]);
  CHECK(read(ready[0], &byte, 1) == 0);  // it has called exec
  CHECK(vector.pids().empty());
  {
    ParticipantSgd instead = participant_of(vector);
    CHECK(instead.push(unit_gradient().data(), 1).published);
    CHECK(vector.live() == 1);
  }
  kill(child, SIGKILL);
  CHECK(wait_for(child) == -SIGKILL);
}

TEST_CASE("a leader that ends while its process goes on is present") {
  const std::string name = fresh_name();
  SharedVector vector = make(name, 1);
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    static SharedVector own = SharedVector::attach(name);
    static ParticipantSgd trainer = participant_of(own);
    std::thread([&] {
      sleep_ms(50);
      if (write(ready[1], "", 1) == 1) pause();
    }).detach();
    syscall(SYS_exit, 0);
  }
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(vector.pids() == std::vector<pid_t>{child});
  kill(child, SIGKILL);
  for (int waited = 0; !vector.pids().empty(); ++waited) {  // a zombie, at last
    REQUIRE(waited < 20000);
    sleep_ms(1);
  }
  CHECK(wait_for(child) != 1);
}

TEST_CASE("whoever comes after all were killed finds nothing but a free name") {
  for (const bool attach : {false, true}) {
    const std::string name = fresh_name();
    Board& board = *new_board();
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t creator = spawn([&] {
      SharedVector vector = make(name, 2);
      REQUIRE(write(ready[1], "", 1) == 1);
      pause();
    });
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    const pid_t other = spawn_trainer(name, board, 0);
    sleep_ms(20);
    kill(creator, SIGKILL);
    kill(other, SIGKILL);
    wait_for(creator);
    wait_for(other);
    CHECK(exists(name));
    if (attach) {
      CHECK(says(message_of([&] { SharedVector::attach(name); }), "all its participants were"));
    } else {
      const SharedVector vector = make(name, 1);
      CHECK(vector.t() == 0);
    }
    CHECK_FALSE(exists(name));
    CHECK_FALSE(SharedMemory::clean(name));
    munmap(&board, sizeof(Board));
  }
}

TEST_CASE("a creator that is killed half-way leaves nothing") {
  const std::string name = fresh_name();
  const pid_t creator = spawn([&] {
    fatal_step = "made";
    passes_left = 0;
    fault_hook = die_there;
    make(name, 2);
  });
  CHECK(wait_for(creator) == -SIGKILL);
  CHECK_FALSE(exists(name));
}

TEST_CASE("one that is killed as it removes the name leaves it to the next") {
  const std::string name = fresh_name();
  const pid_t creator = spawn([&] {
    fatal_step = "removing";
    passes_left = 0;
    fault_hook = die_there;
    make(name, 2);
  });
  CHECK(wait_for(creator) == -SIGKILL);
  CHECK(exists(name));
  CHECK(SharedMemory::clean(name));
  CHECK_FALSE(exists(name));
}

TEST_CASE("a forked child must attach itself, and ends nothing of its parent's") {
  const std::string name = fresh_name();
  auto vector = std::make_unique<SharedVector>(make(name, 2));
  auto trainer = std::make_unique<ParticipantSgd>(*vector, kLength, unit_rule(),
                                                  no_staleness_policy(), kForever);
  auto view = trainer->participant().view();
  const pid_t child = spawn([&] {
    const bool refused =
        says(message_of([&] { trainer->push(unit_gradient().data(), 0); }), "forked");
    view.release();
    trainer.reset();
    vector.reset();
    if (!refused || !exists(name)) _exit(2);
  });
  CHECK(wait_for(child) == 0);
  CHECK(vector->pids().size() == 1);
  CHECK(holds_only(view.data(), 0));
  trainer->push(unit_gradient().data(), 0);
  CHECK(vector->live() == 2);
  CHECK(message_of([&] { make(name, 1); }) != "");
}

#endif
