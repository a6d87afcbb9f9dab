// A trace (trace.h) read: every page checked, and records worker by worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "leashed/trace/trace.h"

namespace leashed {

class Trace {
 public:
  // Throws Error where it cannot be read, is no trace, or a byte of it has changed. It may be one
  // that is still being written: it is as far as it is. `watch` is called for every page, and may
  // throw.
  explicit Trace(const std::string& path, const std::function<void()>& watch = {});
  ~Trace();
  Trace(const Trace&) = delete;

  // Streams, whole.
  std::string header() const;
  std::vector<float> start() const;
  struct End {
    std::uint64_t t;
    std::vector<float> theta;
    std::vector<std::uint64_t> rows = {};  // digests of the tables
  };
  // Empty theta where the training has not ended, or was killed.
  End end() const;

  using Page = std::span<const std::byte>;
  // What there is of a stream.
  const std::vector<Page>& pages(std::uint32_t stream) const;

 private:
  void read(const std::function<void()>& watch);
  std::vector<std::byte> whole(std::uint32_t stream) const;

  const std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::map<std::uint32_t, std::vector<Page>> streams_;
};

// The bytes of one stream, one after the other. The trace must outlive it.
class TraceBytes {
 public:
  TraceBytes(const Trace& trace, std::uint32_t stream) : pages_(trace.pages(stream)) {}

  // Whether there are more: of another record, at a record's end.
  bool more();
  // Of the record begun, which lies in one page; throw Error where it has no more.
  const std::byte* take(std::size_t bytes);
  std::uint8_t byte() { return std::to_integer<std::uint8_t>(*take(1)); }
  std::uint64_t number();  // a varint

 private:
  const std::vector<Trace::Page>& pages_;
  std::size_t page_ = 0, place_ = 0;
};

// The records of one worker, one after the other. The trace must outlive it.
class TraceCursor {
 public:
  TraceCursor(const Trace& trace, std::size_t worker, std::size_t factors);

  // The next record; false: there is none. Throws Error where it is none.
  bool next(TraceRecord& record);
  // Of the record read last, if published; as many as were recorded.
  const std::vector<double>& factors() const { return factors_; }

 private:
  TraceBytes bytes_;
  std::uint64_t k_ = 0, t_read_ = 0;
  std::vector<double> factors_;
};

// A byte has changed. Throws Error.
[[noreturn]] void damaged_trace();

}  // namespace leashed
