#include "leashed/trace/trace_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"

namespace leashed {
namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

// The file, mapped; none where it has less than a page.
std::pair<const std::byte*, std::size_t> map_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat found {};
  if (descriptor < 0 || fstat(descriptor, &found) != 0) {
    const std::string reason = std::strerror(errno);
    if (descriptor >= 0) close(descriptor);
    throw Error(reason);
  }
  const auto size = static_cast<std::size_t>(found.st_size) / trace::kPage * trace::kPage;
  void* bytes = size ? mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0) : nullptr;
  close(descriptor);
  if (bytes == MAP_FAILED) throw Error(std::strerror(errno));
  return {static_cast<const std::byte*>(bytes), size};
}

}  // namespace

Trace::Trace(const std::string& path, const std::function<void()>& watch) {
  std::tie(bytes_, size_) = map_file(path);
  try {
    read(watch);
  } catch (...) {
    if (bytes_) munmap(const_cast<std::byte*>(bytes_), size_);
    throw;
  }
}

Trace::~Trace() {
  if (bytes_) munmap(const_cast<std::byte*>(bytes_), size_);
}

void Trace::read(const std::function<void()>& watch) {
  std::vector<Page> unused;
  for (std::size_t offset = 0; offset < size_; offset += trace::kPage) {
    if (watch) watch();
    const std::byte* const page = bytes_ + offset;
    // Acquire: pairs with the release in TraceStream::commit, where the file is being written.
    const auto state =
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(page)))
            .load(std::memory_order_acquire);
    const auto size = static_cast<std::uint32_t>(state);
    trace::PageHead head;
    std::memcpy(&head, page, sizeof head);
    if (offset == 0 && head.stream != trace::kHeader) throw Error("it is no trace");
    if (state == 0) {  // not begun
      unused.push_back({page, trace::kPage});
      continue;
    }
    if (size > trace::kRoom) damaged_trace();
    const std::uint32_t crc = crc32c(&head.stream, sizeof head.stream + sizeof head.place);
    std::vector<Page>& stream = streams_[head.stream];
    const std::byte* const bytes = page + sizeof head;
    if (crc32c(bytes, size, crc) != state >> 32 || head.place != stream.size()) damaged_trace();
    stream.push_back({bytes, size});
    unused.push_back({bytes + size, trace::kRoom - size});
  }
  if (streams_.empty()) throw Error("it is no trace");
  // What is not used may have a half-written record in it, but not where the training has ended.
  if (!end().theta.empty() && !std::ranges::all_of(unused, all_zero)) damaged_trace();
}

const std::vector<Trace::Page>& Trace::pages(std::uint32_t stream) const {
  static const std::vector<Page> none;
  const auto found = streams_.find(stream);
  return found == streams_.end() ? none : found->second;
}

std::vector<std::byte> Trace::whole(std::uint32_t stream) const {
  std::vector<std::byte> all;
  for (const Page& page : pages(stream)) all.insert(all.end(), page.begin(), page.end());
  return all;
}

std::string Trace::header() const {
  const auto all = whole(trace::kHeader);
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

std::vector<float> Trace::start() const {
  const auto all = whole(trace::kStart);
  std::vector<float> floats(all.size() / sizeof(float));
  std::memcpy(floats.data(), all.data(), floats.size() * sizeof(float));
  return floats;
}

Trace::End Trace::end() const {
  const auto all = whole(trace::kEnd);
  trace::EndHead head;
  if (all.size() < sizeof head) return {};
  std::memcpy(&head, all.data(), sizeof head);
  const std::size_t left = all.size() - sizeof head;
  if (left / sizeof(float) < head.floats) return {};  // killed while that was written
  const std::size_t bytes = head.floats * sizeof(float);
  End end{head.t, std::vector<float>(head.floats)};
  std::memcpy(end.theta.data(), all.data() + sizeof head, bytes);
  end.rows.resize((left - bytes) / sizeof(std::uint64_t));
  if (!end.rows.empty()) {
    std::memcpy(end.rows.data(), all.data() + sizeof head + bytes,
                end.rows.size() * sizeof(std::uint64_t));
  }
  return end;
}

bool TraceBytes::more() {
  while (page_ < pages_.size() && place_ == pages_[page_].size()) ++page_, place_ = 0;
  return page_ < pages_.size();
}

const std::byte* TraceBytes::take(std::size_t bytes) {
  const Trace::Page& page = pages_[page_];
  if (bytes > page.size() - place_) damaged_trace();
  place_ += bytes;
  return page.data() + place_ - bytes;
}

std::uint64_t TraceBytes::number() {
  const auto all = take_varint([this] { return byte(); });
  if (!all) damaged_trace();
  return *all;
}

TraceCursor::TraceCursor(const Trace& trace, std::size_t worker, std::size_t factors)
    : bytes_(trace, static_cast<std::uint32_t>(worker)), factors_(factors) {}

bool TraceCursor::next(TraceRecord& record) {
  if (!bytes_.more()) return false;
  record.outcome = static_cast<trace::Outcome>(bytes_.byte());
  if (record.outcome < trace::Outcome::published || record.outcome > trace::Outcome::given_up) {
    damaged_trace();
  }
  record.k = k_ += bytes_.number();
  record.t_read = t_read_ += bytes_.number();
  record.staleness = bytes_.number();
  record.staleness_schedule = bytes_.number();
  record.tries = bytes_.number();
  if (record.outcome == trace::Outcome::published && !factors_.empty()) {
    const std::size_t bytes = factors_.size() * sizeof(double);
    std::memcpy(factors_.data(), bytes_.take(bytes), bytes);
  }
  return true;
}

void damaged_trace() {
  throw Error("it is damaged: a byte of it has changed; use an unaltered copy");
}

}  // namespace leashed
