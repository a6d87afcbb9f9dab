#include "leashed/vector/presence.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "leashed/base/error.h"

namespace leashed {
namespace {

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Past the file's end, and never beside another's: the kernel joins ranges that follow each other
// in the file.
std::uint64_t offset_of(const SharedMemory& memory, ParticipantId id) {
  const std::uint64_t pages = memory.size() / page() + 1 + 2 * (id >> kPidBits);
  return pages * page();
}

// Whether nothing of the process is left but what its parent has not asked for yet (a zombie). The
// leader of a process may have ended while other threads go on.
bool has_ended(pid_t pid) {
  const std::string number_of = std::to_string(pid);
  // (/proc/<pid>/stat has the same, but an emulator makes up its own process's.)
  std::ifstream file("/proc/" + number_of + "/task/" + number_of + "/stat");
  std::string text;
  if (!std::getline(file, text, '\0')) return false;
  // The name, in parentheses, may hold anything; what follows is words: state, and the 17th number
  // is that of the threads.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream words(text.substr(name_end + 1));
  char state = 0;
  std::int64_t number = 0;
  words >> state;
  for (int i = 1; i <= 17; ++i) words >> number;
  return words && (state == 'Z' || state == 'X') && number <= 1;
}

}  // namespace

Presence::Presence(const SharedMemory& memory, std::uint64_t number)
    : id_(number << kPidBits | static_cast<ParticipantId>(getpid())),
      range_(mmap(nullptr, page(), PROT_NONE, MAP_SHARED, memory.file(),
                  static_cast<off_t>(offset_of(memory, id_)))) {
  if (range_ == MAP_FAILED || madvise(range_, page(), MADV_DONTFORK) != 0) {
    throw Error("cannot map " + memory.path() + ": " + std::strerror(errno));
  }
}

Presence::~Presence() {
  if (getpid() == pid_of(id_)) munmap(range_, page());  // a forked child has something else there
}

bool is_present(const SharedMemory& memory, ParticipantId id) {
  const pid_t pid = pid_of(id);
  if (kill(pid, 0) != 0 && errno == ESRCH) return false;
  // A line for each range: addresses, permissions, offset, device, inode and name.
  std::array<char, 32> offset{};
  std::snprintf(offset.data(), offset.size(), " %08llx ",
                static_cast<unsigned long long>(offset_of(memory, id)));
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  bool empty = true;
  for (std::string range; std::getline(maps, range); empty = false) {
    const std::size_t found = range.find(offset.data());
    if (found == std::string::npos) continue;
    std::istringstream rest(range.substr(found + 1));
    std::string ignored;
    std::uint64_t inode = 0;
    if (rest >> ignored >> ignored >> inode && inode == memory.inode()) return true;
  }
  // Without a line its leader has ended, it is about to go, or this may not be read.
  return empty || maps.bad() ? !has_ended(pid) : false;
}

std::uint64_t pid_namespace() {
  struct stat found {};
  if (stat("/proc/self/ns/pid", &found) != 0) {
    throw Error("/proc cannot be read; is /proc mounted?");
  }
  return found.st_ino;
}

}  // namespace leashed
