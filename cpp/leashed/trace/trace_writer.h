// Writes a trace (trace.h) while a training goes on: every worker to a stream of its own, in pages
// that it maps itself, without a lock or a system call but for a new page. (By a mode, whoever has
// the server's lock writes to the one that there is.)
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/descriptor.h"
#include "leashed/engine/step_observer.h"
#include "leashed/trace/trace.h"

namespace leashed {

class TraceFile {
 public:
  // A new file, beside its place. Throws std::filesystem::filesystem_error, as what follows.
  explicit TraceFile(const std::string& path);
  ~TraceFile();  // deletes it, unless it has its place
  TraceFile(const TraceFile&) = delete;

  // Puts it in its place, and one that is there away: who maps that still has it.
  void settle();

  // The next page, mapped and zero, whose room on the disk is there: what is written to it cannot
  // fail. Any thread.
  std::byte* map_page();

 private:
  const std::string path_, partial_;
  const Descriptor descriptor_;
  bool settled_ = false;
  // Relaxed: distinct pages are all that is asked of it.
  alignas(kCacheLine) std::atomic<std::uint64_t> pages_{0};
};

// One stream's end, to be written on by one thread.
class alignas(kCacheLine) TraceStream {
 public:
  // Throws as TraceFile; so does append.
  TraceStream(TraceFile& file, std::uint32_t stream, std::size_t factors = 0);
  ~TraceStream();
  TraceStream(const TraceStream&) = delete;

  void append(const void* bytes, std::size_t size);
  // A record of at most so many bytes, which lies in one page: encode(to) writes it to `to` and
  // returns its end.
  template <class Encode>
  void record(std::size_t most, const Encode& encode) {
    if (size_ + most > trace::kRoom) next_page();
    const std::byte* const end = encode(room());
    commit(static_cast<std::size_t>(end - room()));
  }
  // What became of the gradient of batch k, computed on version t_read.
  void add(std::uint64_t k, std::uint64_t t_read, const Publication& publication);

 private:
  trace::PageHead& head() { return *reinterpret_cast<trace::PageHead*>(page_); }
  std::byte* room() { return page_ + sizeof(trace::PageHead) + size_; }
  void next_page();
  // So many more bytes of the page have been written.
  void commit(std::size_t bytes);

  TraceFile& file_;
  const std::uint32_t stream_;
  const std::size_t factors_, longest_;
  std::byte* page_ = nullptr;
  std::uint32_t size_ = 0, crc_ = 0, place_ = 0;
  std::uint64_t k_ = 0, t_read_ = 0;  // of the record before
};

class TraceWriter final : public StepObserver {
 public:
  // `header` is the caller's, `start` what the training begins with, in the caller's order: the
  // file has its place once they are in it. Records come in as many streams, each written on by one
  // thread at a time. Throws as TraceFile, or Error where a record of so many factors would not fit
  // a page.
  TraceWriter(const std::string& path, std::string_view header, const std::vector<float>& start,
              std::size_t streams, std::size_t factors);

  // What cannot be written any more ends the recording and not the training. Of a run in place each
  // update is as if it had seen those counted before it.
  void published(const WorkerStep& step, const Publication& publication) override {
    write(step.worker, [&](TraceStream& stream) {
      Publication each = publication;
      for (std::uint64_t i = 0; i < step.count; ++i, ++each.t) {
        stream.add(step.k + i, step.view.t + i, each);
      }
    });
  }
  void abandoned(const WorkerStep& step, const Publication& publication) override {
    published(step, publication);
  }
  template <class Encode>
  void record(std::size_t stream, std::size_t most, const Encode& encode) {
    write(stream, [&](TraceStream& to) { to.record(most, encode); });
  }
  // The training has ended at that version, with tables of these digests; when all workers have.
  void finish(std::uint64_t t, const std::vector<float>& theta,
              const std::vector<std::uint64_t>& rows = {});

  // Why the recording ended before the training; empty: it did not.
  std::string failure() const;

 private:
  template <class F>
  void write(std::size_t number, const F& f) {
    std::unique_ptr<TraceStream>& stream = streams_[number];
    if (!stream) return;
    try {
      f(*stream);
    } catch (...) {
      fail();
      stream.reset();
    }
  }
  // Keeps the first reason: the exception that is being handled.
  void fail() noexcept;

  TraceFile file_;
  std::vector<std::unique_ptr<TraceStream>> streams_;
  mutable std::mutex mutex_;
  std::string failure_;
};

}  // namespace leashed
