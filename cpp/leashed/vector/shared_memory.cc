#include "leashed/vector/shared_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "leashed/base/clock.h"
#include "leashed/base/descriptor.h"
#include "leashed/base/error.h"
#include "leashed/base/fault.h"

namespace leashed {
namespace {

constexpr const char* kFolder = "/dev/shm";
constexpr const char* kPrefix = "/leashed.";
constexpr double kPatience = 5;  // seconds, for another process that is removing the name

[[noreturn]] void fail(const std::string& what) { throw Error(what + ": " + std::strerror(errno)); }

bool lock(int fd, int kind) {
  if (flock(fd, kind | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  fail("cannot lock shared memory");
}

struct stat status_of(int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0) fail("cannot look at shared memory");
  return found;
}

// Opens what lies under that path; -1 where there is nothing.
int open_mine(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) return -1;
  if (fd < 0 && errno != EACCES) fail("cannot open " + path);
  struct stat found {};
  if (stat(path.c_str(), &found) != 0 && fd < 0) return -1;
  if (fd < 0 || status_of(fd).st_uid != geteuid()) {
    if (fd >= 0) close(fd);
    throw Error(path + " belongs to another user (uid " + std::to_string(found.st_uid) +
                "); choose another name");
  }
  return fd;
}

// Removes the name, if nobody uses the memory; the lock stays with fd.
bool remove_unused(int fd, const std::string& path) {
  if (!lock(fd, LOCK_EX)) return false;
  fault_point("removing");
  // No link: it has been removed, and the path may be another's by now.
  if (status_of(fd).st_nlink > 0 && unlink(path.c_str()) != 0) fail("cannot remove " + path);
  return true;
}

void wait_a_little(double& since, const std::string& path) {
  if (since == 0) since = now();
  if (now() - since > kPatience) {
    throw Error(path + " is being removed by a process that does not go on; end that process");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

std::string SharedMemory::path_of(const std::string& name) {
  const auto usual = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  };
  if (name.empty() || name.size() > 200 || !std::all_of(name.begin(), name.end(), usual)) {
    throw Error("name must be 1 to 200 letters, digits, '.', '-' and '_', got '" + name + "'");
  }
  return std::string(kFolder) + kPrefix + name;
}

SharedMemory::SharedMemory(std::string path, int fd)
    : path_(std::move(path)), fd_(fd), inode_(status_of(fd).st_ino), process_(getpid()) {}

SharedMemory SharedMemory::create(const std::string& name, std::size_t bytes,
                                  const std::function<void(std::byte*)>& fill) {
  const std::string path = SharedMemory::path_of(name);
  // A file without a name: if this process is killed before it has one, nothing is left.
  Descriptor file(open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() < 0) fail(std::string("cannot make shared memory in ") + kFolder);
  // Backed now, or a write to it later could end the process.
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes))) {
    errno = error;
    fail("cannot have " + std::to_string((bytes >> 20) + 1) + " MiB in " + kFolder +
         "; fewer participants need less");
  }
  SharedMemory memory(path, file.take());
  memory.map(bytes);
  fill(memory.data_);
  if (!lock(memory.fd_, LOCK_SH)) fail("cannot lock shared memory");
  fault_point("made");
  const std::string unnamed = "/proc/self/fd/" + std::to_string(memory.fd_);
  while (linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno != EEXIST) fail("cannot make " + path);
    if (!clean(name) && access(path.c_str(), F_OK) == 0) {
      throw Error(path + " exists already and is in use; attach to it, or choose another name");
    }
  }
  return memory;
}

SharedMemory SharedMemory::attach(const std::string& name) {
  const std::string path = SharedMemory::path_of(name);
  for (double since = 0;;) {
    Descriptor file(open_mine(path));
    const std::string missing = "there is no shared memory " + path + "; create it first";
    if (file.get() < 0) throw Error(missing);
    if (remove_unused(file.get(), path)) {
      throw Error(missing + " (all its participants were killed)");
    }
    if (lock(file.get(), LOCK_SH)) {
      const struct stat found = status_of(file.get());
      if (found.st_nlink > 0) {
        SharedMemory memory(path, file.take());
        memory.map(static_cast<std::size_t>(found.st_size));
        return memory;
      }
    }
    wait_a_little(since, path);
  }
}

bool SharedMemory::clean(const std::string& name) {
  const std::string path = SharedMemory::path_of(name);
  const Descriptor file(open_mine(path));
  return file.get() >= 0 && remove_unused(file.get(), path);
}

void SharedMemory::map(std::size_t size) {
  if (size == 0) return;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) fail("cannot map " + path_);
  data_ = static_cast<std::byte*>(memory);
  size_ = size;
}

bool SharedMemory::is_mine() const { return getpid() == process_; }

void SharedMemory::let_go() {
  if (fd_ < 0) return;
  if (data_) munmap(std::exchange(data_, nullptr), size_);
  // The lock is of the open file, which a forked child shares: there only its own view of it goes.
  if (is_mine()) {
    try {
      remove_unused(fd_, path_);
    } catch (const Error&) {  // it stays for clean
    }
  }
  close(std::exchange(fd_, -1));
}

}  // namespace leashed
