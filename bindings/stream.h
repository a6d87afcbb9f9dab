// Rows of files from Python: read natively, but for what Python decompresses.
#pragma once

#include <memory>
#include <vector>

#include "arrays.h"
#include "leashed/data/stream_batches.h"

namespace leashed {

// A stream, which ends without the GIL: its threads may be waiting for it.
class PyRowStream {
 public:
  explicit PyRowStream(std::unique_ptr<RowStream> stream) : stream_(std::move(stream)) {}
  PyRowStream(const PyRowStream&) = delete;
  ~PyRowStream() {
    const py::gil_scoped_release release;
    stream_.reset();
  }
  RowStream& operator*() const { return *stream_; }

 private:
  std::unique_ptr<RowStream> stream_;
};

// The rows of a stream as a model reads them.
struct PyStreamedRows {
  std::shared_ptr<PyRowStream> stream;
  StreamedData data;
};

}  // namespace leashed
