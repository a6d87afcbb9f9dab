#include "leashed/data/byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace leashed {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw std::filesystem::filesystem_error("", path,
                                          std::error_code(errno, std::generic_category()));
}

}  // namespace

FileSource::FileSource(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) fail(path);
}

FileSource::~FileSource() { close(file_); }

std::size_t FileSource::read(char* to, std::size_t most, const std::atomic<bool>& stop) {
  // Relaxed: a hint to end soon.
  while (!stop.load(std::memory_order_relaxed)) {
    const ssize_t bytes = ::read(file_, to, most);
    if (bytes >= 0) return static_cast<std::size_t>(bytes);
    if (errno != EINTR) fail(path_);
  }
  return 0;
}

}  // namespace leashed
