// The rows of a batch as NumPy arrays, for a Python callable: leashed.models.external.BatchRows.
#pragma once

#include <span>

#include "arrays.h"
#include "leashed/model/flat_batch.h"
#include "leashed/model/gradient_source.h"

namespace leashed {

// An array that serves one call after another for as long as nobody else refers to it.
template <class T>
class ServingArray {
 public:
  T* data() const { return data_; }
  bool has_room(std::size_t n) const { return array_ && capacity_ >= n; }

  // With the GIL, as is what follows.
  void renew(std::size_t n) {
    if (has_room(n) && array_.ref_count() == 1) return;
    capacity_ = std::max(n, capacity_);
    py::array_t<T> array(static_cast<py::ssize_t>(capacity_));
    data_ = array.mutable_data();
    array_ = std::move(array);
  }
  // Part of it, which refers to it.
  py::array part(std::size_t begin, std::vector<py::ssize_t> shape, bool writable = false) const {
    py::array_t<T> view(std::move(shape), data_ + begin, array_);
    if (!writable) make_read_only(view);
    return view;
  }
  // Where somebody has kept it: a copy in its place, which he cannot write to.
  void leave(std::size_t used) {
    if (array_.ref_count() == 1) return;
    const T* const kept = data_;
    const py::object alive = array_;
    renew(used);
    std::copy_n(kept, used, data_);
  }
  void release() { array_ = py::object(); }

 private:
  py::object array_;
  T* data_ = nullptr;
  std::size_t capacity_ = 0;
};

class RowArrays {
 public:
  void measure(const BatchView& batch) { layout_.measure(batch); }
  // Whether what it has holds the batch that was measured.
  bool has_room() const {
    return offsets_.has_room(layout_.offsets()) && places_.has_room(layout_.entries()) &&
           weights_.has_room(layout_.entries()) && values_.has_room(layout_.floats()) &&
           gradients_.has_room(layout_.floats());
  }
  void fill(const BatchView& batch, std::span<const std::size_t> features_of_tables) {
    layout_.copy(batch, features_of_tables, Counted::apart,
                 {offsets_.data(), places_.data(), weights_.data(), values_.data()});
    std::fill_n(gradients_.data(), layout_.floats(), 0.0f);
  }
  // [floats], as FlatRows has them.
  std::span<float> gradients() const { return {gradients_.data(), layout_.floats()}; }

  // With the GIL, as is what follows: arrays for the next call, of the size of the last.
  void renew() {
    offsets_.renew(layout_.offsets());
    places_.renew(layout_.entries());
    weights_.renew(layout_.entries());
    values_.renew(layout_.floats());
    gradients_.renew(layout_.floats());
  }
  py::object show(std::span<const TableShape> tables, std::size_t batch) const;
  // The gradients are read after the call.
  void leave_gradients() { gradients_.leave(layout_.floats()); }
  void release() {
    offsets_.release();
    places_.release();
    weights_.release();
    values_.release();
    gradients_.release();
  }

 private:
  FlatLayout layout_;
  ServingArray<std::int64_t> offsets_, places_;
  ServingArray<float> weights_, values_, gradients_;
};

}  // namespace leashed
