#include "leashed/model/standardised_source.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace leashed {

struct StandardisedSource::Own final : Workspace {
  explicit Own(std::unique_ptr<Workspace> of_source) : inner(std::move(of_source)) {}

  const std::unique_ptr<Workspace> inner;
  std::vector<float> numbers;
  std::vector<const float*> rows;
};

StandardisedSource::StandardisedSource(const GradientSource& source,
                                       const StandardNumbers& standard)
    : source_(source), standard_(standard) {
  describe(source.described());
}

std::unique_ptr<Workspace> StandardisedSource::make_workspace() const {
  return std::make_unique<Own>(source_.make_workspace());
}

float StandardisedSource::gradient(const float* theta, const BatchView& batch, float* gradient,
                                   Workspace& workspace, const std::atomic<bool>& cancel) const {
  return source_.gradient(theta, batch, gradient, *static_cast<Own&>(workspace).inner, cancel);
}

Evaluation StandardisedSource::evaluate(const float* theta, const BatchView& batch,
                                        Workspace& workspace) const {
  auto& own = static_cast<Own&>(workspace);
  const std::size_t columns = features();
  own.numbers.resize(batch.size * columns);
  own.rows.resize(batch.size);
  for (std::size_t i = 0; i < batch.size; ++i) {
    float* const to = own.numbers.data() + i * columns;
    if (batch.scales) {
      batch.scales->apply(batch.rows[i], to);
    } else {
      std::fill_n(to, columns, 0.0f);
    }
    own.rows[i] = to;
  }
  BatchView told = batch;
  told.rows = own.rows.data();
  return source_.evaluate(theta, told, *own.inner);
}

}  // namespace leashed
