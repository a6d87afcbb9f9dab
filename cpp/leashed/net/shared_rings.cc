#include "leashed/net/shared_rings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "leashed/base/error.h"

namespace leashed {
namespace {

constexpr std::size_t kWords = std::size_t{64} << 10;  // at the front; the largest page there is
constexpr std::size_t kMost = std::size_t{64} << 20;   // of what another names
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

std::size_t file_size(std::size_t capacity) { return kWords + 2 * capacity; }

std::size_t mapped_size(std::size_t capacity) { return kWords + 4 * capacity; }

// The rings' capacity, where it is memory of this user, which nobody can take away from under who
// has mapped it; else 0.
std::size_t capacity_of(int file) {
  struct stat found {};
  if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_uid != geteuid()) return 0;
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return 0;
  const auto size = static_cast<std::size_t>(found.st_size);
  const std::size_t capacity = (size - std::min(size, kWords)) / 2;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const bool usable = std::has_single_bit(capacity) && capacity >= page && capacity <= kMost &&
                      size == file_size(capacity);
  return usable ? capacity : 0;
}

}  // namespace

Secret draw_secret() {
  Secret secret;
  if (getrandom(secret.data(), sizeof secret, 0) != sizeof secret) fail("cannot draw a secret");
  return secret;
}

// Takes the file over.
SharedRings::SharedRings(Descriptor& file, std::size_t capacity)
    : file_(file.take()), capacity_(capacity) {
  // A place for all of it, then the parts into that.
  void* const place =
      mmap(nullptr, mapped_size(capacity), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) fail("cannot map shared memory");
  data_ = static_cast<std::byte*>(place);
  const auto part = [&](std::size_t to, std::size_t from, std::size_t size) {
    return mmap(data_ + to, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_.get(),
                static_cast<off_t>(from)) != MAP_FAILED;
  };
  bool mapped = part(0, 0, kWords);
  for (std::size_t i = 0; i < 4; ++i) {
    mapped = mapped && part(kWords + i * capacity, kWords + i / 2 * capacity, capacity);
  }
  if (mapped) return;
  const int error = errno;
  munmap(data_, mapped_size(capacity));
  errno = error;
  fail("cannot map shared memory");
}

SharedRings::~SharedRings() { munmap(data_, mapped_size(capacity_)); }

void SharedRings::close_file() { const Descriptor closed(file_.take()); }

std::shared_ptr<SharedRings> SharedRings::create(const Secret& secret, std::size_t capacity) {
  Descriptor file(memfd_create("leashed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) fail("cannot make shared memory");
  // Backed now, or a write to it later could end the process.
  const auto size = static_cast<off_t>(file_size(capacity));
  if (const int error = posix_fallocate(file.get(), 0, size)) {
    errno = error;
    fail("cannot have shared memory");
  }
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) < 0) fail("cannot make shared memory");
  const std::shared_ptr<SharedRings> rings(new SharedRings(file, capacity));
  front(rings->data_)->secret = secret;
  return rings;
}

std::shared_ptr<SharedRings> SharedRings::open(pid_t process, int file, const Secret& secret) {
  if (process <= 0 || file < 0) return nullptr;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  // To open what is no file may wait, or do something.
  struct stat found {};
  if (stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return nullptr;
  Descriptor mine(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const std::size_t capacity = mine.get() < 0 ? 0 : capacity_of(mine.get());
  if (capacity == 0) return nullptr;
  std::shared_ptr<SharedRings> rings(new SharedRings(mine, capacity));
  rings->close_file();
  return front(rings->data_)->secret == secret ? rings : nullptr;
}

RingView SharedRings::ring(std::size_t which) const {
  return {&front(data_)->rings[which], data_ + kWords + 2 * which * capacity_, capacity_};
}

void SharedRings::answer(const Secret& answer) { front(data_)->answer = answer; }

bool SharedRings::answered(const Secret& answer) const { return front(data_)->answer == answer; }

}  // namespace leashed
