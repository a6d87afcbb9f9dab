// The journal of a mode's server: who is started in its place reads all that was appended, whole
// files are forgotten, and what is not whole is refused, or ends where it can.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/server/journal.h"

using namespace leashed;
using Kind = modes::Event::Kind;

namespace {

struct JournalFolder {
  JournalFolder() { std::filesystem::create_directory(path); }
  JournalFolder(const JournalFolder&) = delete;
  JournalFolder& operator=(const JournalFolder&) = delete;
  ~JournalFolder() { std::filesystem::remove_all(path); }
  std::string of(const char* name) const { return path / name; }
  std::size_t files() const {
    const std::filesystem::directory_iterator all(path);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("leashed-journal-" + std::to_string(::getpid()));
};

modes::Event pushed(std::uint64_t ticket) {
  return {Kind::push, static_cast<modes::Node>(ticket % 40), ticket, ticket / 2};
}

void write(Journal& to, std::uint64_t lines) {
  for (std::uint64_t i = 0; i < lines; ++i) {
    const auto number = static_cast<std::int64_t>(to.next());
    to.append(pushed(to.next()), Time{10 * number});
  }
}

// Each line is as write() had it; the numbers from there on.
std::uint64_t read(const Journal& from) {
  std::uint64_t next = from.first();
  from.read([&](std::uint64_t number, const LogLine& line) {
    CHECK(number == next++);
    CHECK(line.event.kind == Kind::push);
    CHECK(line.event.ticket == number);
    CHECK(line.event.version == number / 2);
    CHECK(line.event.node == number % 40);
    CHECK(line.at.ns == 10 * static_cast<std::int64_t>(number));
  });
  return next;
}

}  // namespace

TEST_CASE("a line that is no event is refused, and is no push that was lost") {
  using Note = LogLine::Note;
  for (const Note note : {Note::summed, Note::granted, Note::home, Note::lost}) {
    CAPTURE(static_cast<int>(note));
    const JournalFolder folder;
    EventLog log;
    log.append(pushed(0), Time{0});
    log.append({pushed(1), Time{1}, note});
    log.close();
    const EventLog::Block block = log.from(0).front();
    std::ofstream(folder.of("journal.0"), std::ios::binary)
        .write(reinterpret_cast<const char*>(block->data()),
               static_cast<std::streamsize>(block->size()));
    CHECK_THROWS_WITH_AS(Journal(folder.of("journal"), true),
                         doctest::Contains("has line 1, which is no event"), Error);
  }
}

TEST_CASE("who is started again reads what was appended, and goes on behind it") {
  const JournalFolder folder;
  std::mt19937 random(1);
  std::uint64_t next = 0;
  for (int life = 0; life < 40; ++life) {
    Journal journal(folder.of("journal"), life > 0);
    CHECK(journal.next() == next);
    CHECK(read(journal) == next);
    for (int part = 0; part < 4; ++part) {
      write(journal, random() % 30);
      if (random() % 2 == 0) journal.cut();
    }
    next = journal.next();
    CHECK(read(journal) == next);
    const std::uint64_t before = journal.first() + random() % (next - journal.first() + 1);
    journal.forget(before);
    CHECK(journal.first() <= before);
    CHECK(read(journal) == next);
    CHECK(journal.failure() == "");
  }
  CHECK(next > 1000);
  Journal journal(folder.of("journal"), true);
  journal.cut();
  journal.forget(journal.next());
  CHECK(journal.first() == next);
  CHECK(folder.files() == 1);
}

TEST_CASE("a line that is not whole is none, and the next one takes its number") {
  const JournalFolder folder;
  std::string last;
  {
    Journal journal(folder.of("journal"), false);
    write(journal, 9);
    last = folder.of("journal.0");
  }
  const auto whole = std::filesystem::file_size(last);
  SUBCASE("cut off") { std::filesystem::resize_file(last, whole - 3); }
  SUBCASE("zeros, as behind a power cut") {
    std::filesystem::resize_file(last, whole - 3);
    std::filesystem::resize_file(last, whole + 50);
  }
  for (int life = 0; life < 3; ++life) {
    Journal journal(folder.of("journal"), true);
    CHECK(journal.next() == 8u + 5 * life);
    write(journal, 5);
    CHECK(read(journal) == journal.next());
  }
}

TEST_CASE("what is no journal of the run's is refused by name") {
  const JournalFolder folder;
  const std::string path = folder.of("journal");
  CHECK_THROWS_WITH_AS(Journal(path, true), doctest::Contains("there is no journal"), Error);
  {
    Journal journal(path, false);
    for (int part = 0; part < 3; ++part) {
      write(journal, 4);
      journal.cut();
    }
  }
  CHECK_THROWS_WITH_AS(Journal(path, false), doctest::Contains("another run's"), Error);
  std::filesystem::remove(folder.of("journal.4"));
  CHECK_THROWS_WITH_AS(Journal(path, true), doctest::Contains("no line 4"), Error);
  CHECK_THROWS_WITH_AS(Journal(folder.of("nowhere/journal"), false),
                       doctest::Contains("cannot be read"), Error);
}

TEST_CASE("what cannot be written any more leaves nothing from which anybody would go on") {
  JournalFolder folder;
  const std::string path = folder.of("journal");
  Journal journal(path, false);
  write(journal, 4);
  std::filesystem::create_directory(folder.of("journal.4"));  // where the next file is to be
  journal.cut();
  CHECK(journal.failure().find("cannot be written") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.of("journal.0")));
  write(journal, 4);
  CHECK(journal.next() == 8);
  journal.cut();
  journal.forget(8);
  CHECK(journal.unsynced().empty());
  std::filesystem::remove(folder.of("journal.4"));
  CHECK_THROWS_AS(Journal(path, true), Error);
}

TEST_CASE("all files that were written since are to be brought to the disk, and their folder") {
  JournalFolder folder;
  Journal journal(folder.of("journal"), false);
  const auto unsynced = [&journal] {
    std::size_t count = 0;
    for (const int fd : journal.unsynced()) {
      const Descriptor one(fd);
      CHECK(::fsync(fd) == 0);
      ++count;
    }
    return count;
  };
  CHECK(unsynced() == 2);
  write(journal, 4);
  CHECK(unsynced() == 1);
  journal.cut();
  write(journal, 4);
  journal.cut();
  CHECK(unsynced() == 4);
  CHECK(unsynced() == 1);
  journal.give_up(EIO);
  CHECK(unsynced() == 0);
}

TEST_CASE("a journal in the working directory is brought to the disk with that") {
  const JournalFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  Journal journal("journal", false);
  write(journal, 4);
  for (const int fd : journal.unsynced()) CHECK(::fsync(Descriptor(fd).get()) == 0);
  std::filesystem::current_path(before);
  CHECK(journal.failure() == "");
}

TEST_CASE("a journal whose folder cannot be brought to the disk is given up, by why") {
  JournalFolder folder;
  Journal journal(folder.of("journal"), false);
  std::filesystem::rename(folder.path, folder.path.string() + "-moved");
  CHECK(journal.unsynced().size() == 1);
  CHECK(journal.failure().find("No such file or directory") != std::string::npos);
  std::filesystem::rename(folder.path.string() + "-moved", folder.path);
}
