// A stream that is read while a run trains on it, from its beginning to after the workers' end.
#pragma once

#include <cstdint>

#include "leashed/data/stream_batches.h"

namespace leashed {

class Reading {
 public:
  // Rows before `first` are passed over. Null: there is nothing to read.
  Reading(const StreamedData* stream, std::uint64_t first) : stream_(stream) {
    if (stream) stream->stream->start(first);
  }
  Reading(const Reading&) = delete;
  ~Reading() {
    if (stream_) stream_->stream->end();
  }

 private:
  const StreamedData* const stream_;
};

}  // namespace leashed
