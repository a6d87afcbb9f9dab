// Columns that come by the Arrow C stream interface, from whatever library: its structures are an
// open format (https://arrow.apache.org/docs/format/CStreamInterface.html), and nothing is linked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "leashed/data/delimited.h"
#include "leashed/data/row_origin.h"

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
}

namespace leashed {

// One of those, released in the end.
template <class T>
class Released {
 public:
  Released() = default;
  explicit Released(const T& given) : value_(given) {}
  Released(Released&& other) noexcept : value_(other.value_) { other.value_.release = nullptr; }
  Released& operator=(Released&& other) noexcept {
    reset();
    value_ = other.value_;
    other.value_.release = nullptr;
    return *this;
  }
  ~Released() { reset(); }
  T* get() { return &value_; }
  const T* get() const { return &value_; }
  explicit operator bool() const { return value_.release != nullptr; }
  void reset() {
    if (value_.release) value_.release(&value_);
    value_.release = nullptr;
  }

 private:
  T value_ = {};
};

// Rows of a stream's columns, by the same settings as lines of text, of which names and separators
// are not asked for. A whole number where text is wanted is its decimal digits. A row is bad whose
// place in a dictionary, or whose text or list, is beyond what there is. (How large a buffer is,
// the interface does not tell: that the last offset is within it is believed.)
class ArrowOrigin final : public RowOrigin {
 public:
  using Open = std::function<Released<ArrowArrayStream>()>;

  // again: whether it can be opened more than once. Throws Error where a column is missing, or of a
  // type that cannot become what it is to.
  ArrowOrigin(std::string name, Open open, const DelimitedSettings& settings, bool again);

  std::unique_ptr<Part> next(const std::atomic<bool>& stop) override;
  bool rewind() override;
  const std::vector<std::string>& names() const override { return names_; }
  const char* unit() const override { return "row"; }

 private:
  struct Slice;
  // What slices of a stream have in common.
  struct Columns {
    DelimitedSettings settings;
    RowLayout layout;
    Released<ArrowSchema> schema;
    std::vector<std::size_t> places;  // of each column among the schema's
  };
  void open_again();
  void check(const ArrowArray& batch) const;

  const std::vector<std::string> names_;
  const Open open_;
  const DelimitedSettings settings_;
  const bool again_;
  Released<ArrowArrayStream> stream_;
  std::shared_ptr<const Columns> columns_;
  std::shared_ptr<const Released<ArrowArray>> batch_;  // of which rows are left
  std::int64_t next_row_ = 0;
  bool begins_ = true;
};

}  // namespace leashed
