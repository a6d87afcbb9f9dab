#include "leashed/discipline/shared.h"

#include <string>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/discipline/leashed.h"

namespace leashed {
namespace {

SharedVector& checked(SharedVector& vector, const Layout& layout) {
  if (vector.length() != layout.length()) {
    throw Error("the shared vector holds " + std::to_string(vector.length()) +
                " floats, theta and the rule's state need " + std::to_string(layout.length()));
  }
  return vector;
}

}  // namespace

SharedTrainer::SharedTrainer(SharedVector& vector, std::size_t dimension, const Rule& rule,
                             const StalenessPolicy& staleness, std::uint64_t persistence)
    : updater_(DisciplineContext{nullptr, dimension, vector.participants(), 0, rule, staleness}),
      persistence_(persistence),
      participant_(checked(vector, updater_.layout())),
      stores_(vector.participants(), vector.length()) {}

Publication SharedTrainer::push(const float* gradient, std::uint64_t t_read) {
  participant_.vector().require_mine();
  if (participant_.vector().in_place()) return push_in_place(gradient, t_read);
  const GradientPiece whole{gradient, 0, updater_.layout().dimension};
  return load_and_update(participant_, updater_, {&whole, 1}, persistence_, t_read, stores_);
}

// As discipline/hogwild.cc does.
Publication SharedTrainer::push_in_place(const float* gradient, std::uint64_t t_read) {
  Publication result;
  const double start = now();
  const GradientPiece whole{gradient, 0, updater_.layout().dimension};
  const double clip_factor = updater_.clip_factor({&whole, 1});
  std::uint64_t replaced = 0;
  if (!updater_.may_exclude()) {
    replaced = participant_.count();
  } else {
    replaced = participant_.vector().t();
    do {
      result.excluded = updater_.excludes(participant_.data(), replaced - t_read);
    } while (!result.excluded && !participant_.count(replaced));
  }
  if (!result.excluded) {
    const std::uint64_t tau = replaced - t_read;
    const Stores stores = stores_.at(replaced);
    const double begin = now();
    updater_.apply_racy(participant_.data(), {&whole, 1}, {replaced, tau, clip_factor, stores});
    stores_.took(replaced, now() - begin);
    updater_.applied(tau);
    result.published = true;
    result.staleness_compute = tau;
  }
  result.update_seconds = now() - start;
  return result;
}

}  // namespace leashed
