// Rows of files from Python: read natively, but for what Python decompresses.
#pragma once

#include <unistd.h>

#include <memory>
#include <mutex>
#include <vector>

#include "arrays.h"
#include "leashed/data/row_stream.h"
#include "leashed/data/sent_rows.h"
#include "leashed/data/stream_batches.h"

namespace leashed {

// A stream, which ends without the GIL: its threads may be waiting for it. A process that was
// forked meanwhile has none of them, and may have a lock that one of them held: it leaves all as it
// is. Rows that were taken and not used, since a call was interrupted, are kept for the next one.
class PyRowStream {
 public:
  explicit PyRowStream(std::unique_ptr<RowStream> stream)
      : stream_(std::move(stream)), process_(getpid()) {}
  PyRowStream(const PyRowStream&) = delete;
  ~PyRowStream() {
    const py::gil_scoped_release release;
    forked() ? static_cast<void>(stream_.release()) : stream_.reset();
  }
  // Throws Error in a process that was forked.
  RowStream& operator*() const;
  void end() const {
    if (forked()) return;
    const py::gil_scoped_release release;
    stream_->end();
  }
  // Such rows, which are kept no more; none: null.
  py::object kept();
  void keep(py::object rows);

 private:
  bool forked() const { return getpid() != process_; }

  std::unique_ptr<RowStream> stream_;
  const pid_t process_;
  std::mutex keeping_;  // of kept_; nobody who has it waits for the GIL
  std::vector<py::object> kept_;
};

// The rows of a stream as a model reads them.
struct PyStreamedRows {
  std::shared_ptr<void> stream;
  StreamedData data;
};

}  // namespace leashed
