#include "leashed/server/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {

namespace {

// The numbers behind that path and a point, of files that are there.
std::vector<std::uint64_t> numbers_of(const std::filesystem::path& path) {
  const std::string begins = path.filename().string() + '.';
  std::vector<std::uint64_t> found;
  std::error_code why;
  for (const auto& one : std::filesystem::directory_iterator(path.parent_path(), why)) {
    const std::string name = one.path().filename().string();
    if (!name.starts_with(begins)) continue;
    std::uint64_t number = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + begins.size(), end, number);
    if (read.ec == std::errc() && read.ptr == end) found.push_back(number);
  }
  if (why) throw Error(path.parent_path().string() + " cannot be read: " + why.message());
  std::ranges::sort(found);
  return found;
}

std::vector<std::byte> bytes_of(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  std::vector<char> all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file && !file.eof()) throw Error(name + " cannot be read");
  const auto bytes = std::as_bytes(std::span(all));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Journal::Journal(const std::string& path, bool again) : path_(std::filesystem::absolute(path)) {
  starts_ = numbers_of(path_);
  if (again && starts_.empty()) {
    throw Error("there is no journal " + path_ +
                ".*, by which this server would go on: it could not be written, or was removed; "
                "start the run again");
  }
  if (!again && !starts_.empty()) {
    throw Error("the journal " + path_ + ".* is another run's; take another folder");
  }
  if (!starts_.empty()) {
    std::uint64_t next = first();
    read([&](std::uint64_t number, const LogLine&) { next = number + 1; });
    log_ = EventLog(next);
  }
  if (starts_.empty() || starts_.back() != next()) starts_.push_back(next());
  if (const int why = begin_file(); why != 0) {
    throw Error("the journal " + path_ + ".* cannot be written: " + std::strerror(why));
  }
}

// A file may end within a line, where a process before this one was killed; the next has that line.
void Journal::read(const std::function<void(std::uint64_t, const LogLine&)>& f) const {
  std::uint64_t next = first();
  for (const std::uint64_t start : starts_) {
    if (start != next) {
      throw Error("the journal " + path_ + ".* has no line " + std::to_string(next) +
                  ", and later ones; start the run again");
    }
    const std::vector<std::byte> bytes = bytes_of(named(start));
    ReadBlock block;
    for (std::span<const std::byte> left(bytes); !left.empty();) {
      std::size_t size = 0;
      try {
        size = block.read(left);
      } catch (const Error&) {  // what was not on the disk at a power cut
      }
      if (size == 0 || block.first != next) break;
      for (const LogLine& line : block.lines) {
        if (line.note != LogLine::Note::none) {
          throw Error("the journal " + path_ + ".* has line " + std::to_string(next) +
                      ", which is no event: no journal has such lines; start the run again");
        }
        f(next++, line);
      }
      left = left.subspan(size);
    }
  }
}

void Journal::append(const modes::Event& event, Time at) {
  const std::uint64_t number = log_.append(event, at);
  log_.close();
  const EventLog::Block block = log_.from(number).front();
  log_.forget(log_.next());
  if (!file_) return;
  std::span<const std::byte> left(*block);
  while (!left.empty()) {
    const ssize_t written = ::write(file_->get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return give_up(written < 0 ? errno : ENOSPC);
    left = left.subspan(static_cast<std::size_t>(written));
  }
}

void Journal::cut() {
  if (!file_ || starts_.back() == next()) return;
  starts_.push_back(next());
  before_.emplace_back(file_->take());
  if (const int why = begin_file(); why != 0) give_up(why);
}

int Journal::begin_file() {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC;
  constexpr mode_t kMode = 0644;
  const int fd = ::open(named(starts_.back()).c_str(), kFlags, kMode);
  if (fd < 0) return errno;
  file_.emplace(fd);
  made_ = true;
  return 0;
}

void Journal::forget(std::uint64_t before) {
  while (file_ && starts_.size() > 1 && starts_[1] <= before) {
    ::unlink(named(starts_.front()).c_str());
    starts_.erase(starts_.begin());
  }
}

std::vector<int> Journal::unsynced() {
  std::vector<int> found;
  if (!file_) return found;
  for (Descriptor& one : before_) found.push_back(one.take());
  before_.clear();
  const auto opened = [&](int fd) { fd < 0 ? give_up(errno) : found.push_back(fd); };
  opened(::fcntl(file_->get(), F_DUPFD_CLOEXEC, 0));
  if (file_ && std::exchange(made_, false)) {
    const auto folder = std::filesystem::path(path_).parent_path();
    opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  return found;
}

void Journal::give_up(int error) {
  failure_ = "the journal " + path_ + ".* cannot be written: " + std::strerror(error);
  file_.reset();
  before_.clear();
  for (const std::uint64_t start : starts_) ::unlink(named(start).c_str());
}

}  // namespace leashed
