// The gradient source contract (DESIGN decision 5): where gradients come from is one choice among
// the others, so the engine knows a model only through this interface.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace leashed {

// One mini-batch: `size` pointers to rows of the dataset, and the class of each.
struct BatchView {
  const float* const* rows;
  const std::int32_t* labels;
  std::size_t size;
  const float* const* next_rows = nullptr;  // of the batch after this one, to fetch meanwhile
};

// Scratch memory of one thread; a source makes it and alone knows what is in it.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

// Sums over the rows of a batch, so that those of several threads can be added.
struct Evaluation {
  double loss_sum = 0;
  std::uint64_t correct = 0;
  std::uint64_t rows = 0;
};

class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // d, the length of the parameter vector.
  virtual std::size_t dimension() const = 0;
  // The length of a row.
  virtual std::size_t features() const = 0;
  virtual std::unique_ptr<Workspace> make_workspace() const = 0;
  // Where the variables that theta is made of end, in order; empty: it is one.
  virtual std::vector<std::size_t> block_ends() const { return {}; }

  // Writes the gradient of the batch's mean loss at theta to gradient[0..d) (overwriting it) and
  // returns that loss. Allocates nothing, takes no lock. Where `cancel` turns true it may return at
  // once; the gradient is then worthless and the caller drops it.
  virtual float gradient(const float* theta, const BatchView& batch, float* gradient,
                         Workspace& workspace, const std::atomic<bool>& cancel) const = 0;

  // Loss and number of rows classified right at theta, over the batch (any size).
  virtual Evaluation evaluate(const float* theta, const BatchView& batch,
                              Workspace& workspace) const = 0;
};

}  // namespace leashed
