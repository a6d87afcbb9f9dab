// Memory under a name that processes share (POSIX shared memory: a file in /dev/shm), of which
// nothing is left when the last of them is gone.
//
// Whoever uses the memory holds a shared flock on its file, which the kernel takes back when the
// process ends, however it ends. The name is removed under the exclusive lock only, which nobody
// gets while anyone uses the memory: by the last user when it leaves; by a janitor process that
// waits for the lock, where the last was killed (src/leashed/engine/_janitor.py); or, where the
// janitor was killed too, by the next process that creates or attaches to the name, or cleans up.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace leashed {

class SharedMemory {
 public:
  // Makes `bytes` of memory, all of it backed, and fills it before anybody can find it under its
  // name. Throws Error where the name is in use, or there is no room.
  static SharedMemory create(const std::string& name, std::size_t bytes,
                             const std::function<void(std::byte*)>& fill);
  // Throws Error where there is none of that name, or it is not this user's.
  static SharedMemory attach(const std::string& name);
  // Removes what nobody uses any more; false where there is nothing of the kind.
  static bool clean(const std::string& name);
  // Throws Error where it is no name.
  static std::string path_of(const std::string& name);

  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    let_go();
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    data_ = std::exchange(other.data_, nullptr);
    size_ = other.size_;
    inode_ = other.inode_;
    process_ = other.process_;
    return *this;
  }
  ~SharedMemory() { let_go(); }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  const std::string& path() const { return path_; }
  int file() const { return fd_; }
  std::uint64_t inode() const { return inode_; }
  // False in a child that was forked since: the memory is its parent's to use.
  bool is_mine() const;

 private:
  SharedMemory(std::string path, int fd);
  void map(std::size_t size);
  void let_go();

  std::string path_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t inode_ = 0;
  pid_t process_ = 0;
};

}  // namespace leashed
