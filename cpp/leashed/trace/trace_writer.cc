#include "leashed/trace/trace_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>

#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"
#include "leashed/base/partial_name.h"

namespace leashed {
namespace {

static_assert(std::endian::native == std::endian::little, "as the file");

constinit const std::byte zeros[trace::kPage] = {};

[[noreturn]] void fail(int error, const std::string& path) {
  throw std::filesystem::filesystem_error("", path,
                                          std::error_code(error, std::generic_category()));
}

int create(const std::string& path, const std::string& partial) {
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) fail(EEXIST, path);
  unlink(partial.c_str());  // of a process that was killed and had this one's number
  const int descriptor = open(partial.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(errno, path);
  return descriptor;
}

trace::Outcome outcome_of(const Publication& publication) {
  if (publication.published) return trace::Outcome::published;
  if (publication.abandoned) return trace::Outcome::given_up;
  return publication.excluded ? trace::Outcome::excluded : trace::Outcome::dropped;
}

}  // namespace

TraceFile::TraceFile(const std::string& path)
    : path_(path), partial_(partial_name(path)), descriptor_(create(path_, partial_)) {}

TraceFile::~TraceFile() {
  if (!settled_) unlink(partial_.c_str());
}

void TraceFile::settle() {
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail(errno, path_);
  settled_ = true;
}

std::byte* TraceFile::map_page() {
  const auto offset =
      static_cast<off_t>(pages_.fetch_add(1, std::memory_order_relaxed) * trace::kPage);
  // Written and not only kept free (posix_fallocate): pages of the system's cache that hold zeros
  // already are mapped in one go, where those of a hole in the file are each cleared and, on the
  // first store, asked for once more.
  for (std::size_t written = 0; written < trace::kPage;) {
    const ssize_t part = pwrite(descriptor_.get(), zeros + written, trace::kPage - written,
                                offset + static_cast<off_t>(written));
    if (part < 0 && errno != EINTR) fail(errno, path_);
    if (part > 0) written += static_cast<std::size_t>(part);
  }
  void* page = mmap(nullptr, trace::kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                    descriptor_.get(), offset);
  if (page == MAP_FAILED) fail(errno, path_);
  return static_cast<std::byte*>(page);
}

TraceStream::TraceStream(TraceFile& file, std::uint32_t stream, std::size_t factors)
    : file_(file), stream_(stream), factors_(factors), longest_(trace::longest(factors)) {
  next_page();
}

TraceStream::~TraceStream() {
  if (page_) munmap(page_, trace::kPage);
}

void TraceStream::next_page() {
  std::byte* const page = file_.map_page();
  if (page_) munmap(page_, trace::kPage);
  page_ = page;
  trace::PageHead& begun = head();
  begun.stream = stream_;
  begun.place = place_++;
  size_ = 0;
  crc_ = crc32c(&begun.stream, sizeof begun.stream + sizeof begun.place);
  commit(0);
}

void TraceStream::commit(std::size_t bytes) {
  crc_ = crc32c(room(), bytes, crc_);
  size_ += static_cast<std::uint32_t>(bytes);
  // Release: after the bytes that it stands for, for who reads the file: another process, or one
  // that comes when this one has been killed.
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(page_))
      .store(size_ | std::uint64_t{crc_} << 32, std::memory_order_release);
}

void TraceStream::append(const void* bytes, std::size_t size) {
  const auto* from = static_cast<const std::byte*>(bytes);
  while (size > 0) {
    if (size_ == trace::kRoom) next_page();
    const std::size_t part = std::min(size, trace::kRoom - size_);
    std::memcpy(room(), from, part);
    commit(part);
    from += part;
    size -= part;
  }
}

void TraceStream::add(std::uint64_t k, std::uint64_t t_read, const Publication& publication) {
  record(longest_, [&](std::byte* to) {
    const trace::Outcome outcome = outcome_of(publication);
    *to++ = static_cast<std::byte>(outcome);
    to = put_varint(to, k - k_);
    to = put_varint(to, t_read - t_read_);
    to = put_varint(to, outcome == trace::Outcome::given_up ? 0 : publication.t - t_read);
    to = put_varint(to, publication.staleness_schedule);
    to = put_varint(to, publication.tries);
    k_ = k;
    t_read_ = t_read;
    if (factors_ == 0 || !publication.published) return to;
    const double* factors = factors_ == 1 ? &publication.factor : publication.factors;
    std::memcpy(to, factors, factors_ * sizeof(double));
    return to + factors_ * sizeof(double);
  });
}

TraceWriter::TraceWriter(const std::string& path, std::string_view header,
                         const std::vector<float>& start, std::size_t streams, std::size_t factors)
    : file_([&]() -> const std::string& {
        if (trace::longest(factors) <= trace::kRoom) return path;
        throw Error("record: the staleness policy has a factor for each of " +
                    std::to_string(factors) +
                    " variables, which do not fit a page; leave record "
                    "out, or choose a policy that is not stage-aware");
      }()) {
  TraceStream(file_, trace::kHeader).append(header.data(), header.size());
  TraceStream(file_, trace::kStart).append(start.data(), start.size() * sizeof(float));
  for (std::size_t stream = 0; stream < streams; ++stream) {
    streams_.push_back(
        std::make_unique<TraceStream>(file_, static_cast<std::uint32_t>(stream), factors));
  }
  file_.settle();
}

void TraceWriter::finish(std::uint64_t t, const std::vector<float>& theta,
                         const std::vector<std::uint64_t>& rows) {
  if (!failure().empty()) return;
  try {
    TraceStream end(file_, trace::kEnd);
    const trace::EndHead head{t, theta.size()};
    end.append(&head, sizeof head);
    end.append(theta.data(), theta.size() * sizeof(float));
    end.append(rows.data(), rows.size() * sizeof rows[0]);
  } catch (...) {
    fail();
  }
}

std::string TraceWriter::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void TraceWriter::fail() noexcept {
  std::string reason = "no memory";
  try {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    reason = error.code().message();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = reason;
}

}  // namespace leashed
