// Views of the parameters for Python: arrays without a copy, which keep what they show for as long
// as anyone refers to them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "arrays.h"
#include "leashed/engine/engine.h"

namespace leashed {

// Vectors from so many floats on are copied or updated without the GIL; for shorter ones giving it
// up and waiting for it again costs more than the work.
inline constexpr std::size_t kReleaseGil = 8192;

inline void make_read_only(py::array& array) {
  py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
}

// What Python calls a read: a context manager that holds a view.
class Read {
 public:
  // `writable` is for PyTorch, which knows no read-only memory.
  explicit Read(std::shared_ptr<Readable> source, bool writable = false)
      : source_(std::move(source)), writable_(writable) {}

  py::array enter() {
    const std::lock_guard one_at_a_time(mutex_);
    if (view_) throw std::runtime_error("this read is already entered; call read() again");
    auto base = std::make_unique<Base>();
    base->source = source_;
    if (source_->dimension() < kReleaseGil) {
      base->held = source_->hold();
    } else {
      const py::gil_scoped_release release;
      base->held = source_->hold();
    }
    const View view = base->held->view;
    t_ = view.t;
    const py::capsule owner(base.release(), [](void* p) { delete static_cast<Base*>(p); });
    view_ = py::array_t<float>(static_cast<py::ssize_t>(source_->dimension()), view.theta, owner);
    if (!writable_) make_read_only(*view_);
    return *view_;
  }
  void exit(const py::object&, const py::object&, const py::object&) {
    const std::lock_guard one_at_a_time(mutex_);
    view_.reset();
  }
  std::uint64_t t() const { return t_; }

 private:
  // What an array's base object owns; the view goes first.
  struct Base {
    std::shared_ptr<Readable> source;
    std::unique_ptr<Held> held;
  };

  const std::shared_ptr<Readable> source_;
  const bool writable_;
  std::mutex mutex_;  // on free-threaded Python two threads may enter at once
  std::optional<py::array> view_;
  std::uint64_t t_ = 0;
};

// leashed.Update(published, staleness, tries).
py::object to_update(const Publication& publication);

}  // namespace leashed
