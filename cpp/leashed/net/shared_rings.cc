#include "leashed/net/shared_rings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {
namespace {

// Of each ring. Both fit into the cache of one core, and the largest frame of a ring of members
// does with another behind it.
constexpr std::size_t kCapacity = std::size_t{1} << 20;
constexpr std::size_t kWords = std::size_t{64} << 10;  // at the front; the largest page there is
constexpr std::size_t kFile = kWords + 2 * kCapacity;
constexpr std::size_t kMapped = kWords + 4 * kCapacity;  // each ring twice
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// At the front of the memory.
struct Front {
  RingWords rings[2];
  Secret secret, answer;
};
static_assert(sizeof(Front) <= kWords);

Front* front(std::byte* data) { return reinterpret_cast<Front*>(data); }

[[noreturn]] void fail(const char* what) {
  const int error = errno;
  throw Error(std::string(what) + ": " + std::strerror(error));
}

// Whether it is memory of this user, which nobody can take away from under who has mapped it.
bool usable(int file) {
  struct stat found {};
  return fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
         found.st_size == static_cast<off_t>(kFile) &&
         (fcntl(file, F_GET_SEALS) & kSeals) == kSeals;
}

}  // namespace

Secret draw_secret() {
  Secret secret;
  if (getrandom(secret.data(), sizeof secret, 0) != sizeof secret) fail("cannot draw a secret");
  return secret;
}

// Takes the file over.
SharedRings::SharedRings(int file) : file_(file) {
  // A place for all of it, then the parts into that.
  void* const place = mmap(nullptr, kMapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) {
    close_file();
    fail("cannot map shared memory");
  }
  data_ = static_cast<std::byte*>(place);
  const auto part = [&](std::size_t to, std::size_t from, std::size_t size) {
    return mmap(data_ + to, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                static_cast<off_t>(from)) != MAP_FAILED;
  };
  bool mapped = part(0, 0, kWords);
  for (std::size_t i = 0; i < 4; ++i) {
    mapped = mapped && part(kWords + i * kCapacity, kWords + i / 2 * kCapacity, kCapacity);
  }
  if (mapped) return;
  munmap(data_, kMapped);
  close_file();
  fail("cannot map shared memory");
}

SharedRings::~SharedRings() {
  munmap(data_, kMapped);
  close_file();
}

void SharedRings::close_file() {
  if (file_ >= 0) close(std::exchange(file_, -1));
}

std::shared_ptr<SharedRings> SharedRings::create(const Secret& secret) {
  const int file = memfd_create("leashed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) fail("cannot make shared memory");
  // Backed now, or a write to it later could end the process.
  if (const int error = posix_fallocate(file, 0, kFile)) {
    close(file);
    errno = error;
    fail("cannot have shared memory");
  }
  if (fcntl(file, F_ADD_SEALS, kSeals) < 0) {
    close(file);
    fail("cannot make shared memory");
  }
  const std::shared_ptr<SharedRings> rings(new SharedRings(file));
  front(rings->data_)->secret = secret;
  return rings;
}

std::shared_ptr<SharedRings> SharedRings::open(pid_t process, int file, const Secret& secret) {
  if (process <= 0 || file < 0) return nullptr;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  // To open what is no file may wait, or do something.
  struct stat found {};
  if (stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return nullptr;
  const int mine = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (mine < 0) return nullptr;
  if (!usable(mine)) {
    close(mine);
    return nullptr;
  }
  std::shared_ptr<SharedRings> rings(new SharedRings(mine));
  rings->close_file();
  return front(rings->data_)->secret == secret ? rings : nullptr;
}

RingView SharedRings::ring(std::size_t which) const {
  return {&front(data_)->rings[which], data_ + kWords + 2 * which * kCapacity, kCapacity};
}

void SharedRings::answer(const Secret& answer) { front(data_)->answer = answer; }

bool SharedRings::answered(const Secret& answer) const { return front(data_)->answer == answer; }

}  // namespace leashed
