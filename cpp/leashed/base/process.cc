#include "leashed/base/process.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "leashed/base/error.h"

namespace leashed {
namespace {

struct Status {
  char state;
  std::uint64_t threads;
  ProcessId id;
};

// Of the process's first thread, which has the process's pid and start time; nothing where that
// cannot be read. (/proc/<pid>/stat has the same, but an emulator makes up its own process's.)
std::optional<Status> status_of(pid_t pid) {
  const std::string number_of = std::to_string(pid);
  std::ifstream file("/proc/" + number_of + "/task/" + number_of + "/stat");
  std::string text;
  if (!std::getline(file, text, '\0')) return std::nullopt;
  // The name, in parentheses, may hold anything; what follows is words: state, and up to the start
  // time 19 numbers, of which the threads are the 17th.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(name_end + 1));
  Status status{};
  words >> status.state;
  std::int64_t number = 0;
  for (int i = 1; i <= 19; ++i) {
    words >> number;
    if (i == 17) status.threads = static_cast<std::uint64_t>(number);
  }
  if (!words) return std::nullopt;
  status.id = static_cast<ProcessId>(number) << kPidBits | static_cast<ProcessId>(pid);
  return status;
}

}  // namespace

ProcessId this_process() {
  const auto status = status_of(getpid());
  if (!status) throw Error("/proc cannot be read; is /proc mounted?");
  return status->id;
}

bool is_alive(ProcessId id) {
  const pid_t pid = pid_of(id);
  if (kill(pid, 0) != 0 && errno == ESRCH) return false;
  const auto status = status_of(pid);
  // Exists, but /proc hides it, or it ended just now: the next to ask will know.
  if (!status) return true;
  if (status->id != id) return false;
  // The leader of a process may have ended while other threads go on.
  return !((status->state == 'Z' || status->state == 'X') && status->threads <= 1);
}

std::uint64_t pid_namespace() {
  struct stat found {};
  if (stat("/proc/self/ns/pid", &found) != 0) {
    throw Error("/proc cannot be read; is /proc mounted?");
  }
  return found.st_ino;
}

}  // namespace leashed
