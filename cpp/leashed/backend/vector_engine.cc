#include "leashed/backend/vector_engine.h"

#include <stdexcept>

#include "leashed/discipline/leashed.h"
#include "leashed/update/registry.h"

namespace leashed {

VectorEngine::VectorEngine(const float* theta, std::size_t dimension, std::size_t workers,
                           std::size_t readers)
    // One reader more than the user may be: t().
    : vector_(theta, dimension, workers, readers + 1), workers_(workers), readers_(readers) {}

std::unique_ptr<Held> VectorEngine::hold() {
  return hold_under(readers_, "ParameterVector", [this] { return hold_latest(vector_); });
}

Publication VectorEngine::update(const float* gradient, float lr, double persistence,
                                 std::uint64_t t_read) {
  if (!workers_.take()) {
    throw std::runtime_error(
        "too many threads update at once; make the ParameterVector with more workers");
  }
  struct GiveBack {
    Permits& permits;
    ~GiveBack() { permits.give_back(); }
  } const give_back{workers_};
  const GradientPiece whole{gradient, 0, vector_.length()};
  const auto rule = make_rule({"sgd", {{"lr", lr}}});
  const Updater updater(vector_.length(), *rule);
  StoreChoice stores(1, 0);  // a thread of the user's own; nothing is known of it
  return load_and_update(vector_, updater, {&whole, 1}, persistence_bound(persistence), t_read,
                         stores);
}

std::uint64_t VectorEngine::t() {
  const std::lock_guard lock(t_mutex_);
  return vector_.pin().t();
}

}  // namespace leashed
