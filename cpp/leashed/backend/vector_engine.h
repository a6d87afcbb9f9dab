// A ParameterVector for threads of somebody else's that come and go, so many at a time: views, and
// plain SGD in the LAU-SPC loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "leashed/backend/readable.h"
#include "leashed/vector/parameter_vector.h"
#include "leashed/vector/permits.h"

namespace leashed {

class VectorEngine final : public Readable {
 public:
  VectorEngine(const float* theta, std::size_t dimension, std::size_t workers, std::size_t readers);

  std::size_t dimension() const override { return vector_.length(); }
  std::unique_ptr<Held> hold() override;
  // Latest − lr · gradient, published; the gradient was computed on version t_read. Throws
  // std::runtime_error where as many threads are at it as there may be.
  Publication update(const float* gradient, float lr, double persistence, std::uint64_t t_read);

  std::uint64_t t();
  std::size_t live() const { return vector_.live(); }
  std::size_t capacity() const { return vector_.capacity(); }

 private:
  ParameterVector vector_;
  Permits workers_, readers_;
  std::mutex t_mutex_;  // one caller of t at a time, who is one reader
};

}  // namespace leashed
