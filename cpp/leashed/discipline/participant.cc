#include "leashed/discipline/participant.h"

#include <string>

#include "leashed/base/error.h"
#include "leashed/discipline/count_and_update.h"
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

ParticipantSgd::ParticipantSgd(SharedVector& vector, std::size_t dimension, const Rule& rule,
                               const StalenessPolicy& staleness, std::uint64_t persistence)
    : updater_(DisciplineContext{nullptr, dimension, vector.participants(), 0, rule, staleness}),
      persistence_(persistence),
      participant_(checked(vector, updater_.layout())),
      stores_(vector.participants(), vector.length()) {}

Publication ParticipantSgd::push(const float* gradient, std::uint64_t t_read) {
  participant_.vector().require_mine();
  const GradientPiece whole{gradient, 0, updater_.layout().dimension};
  if (participant_.vector().in_place()) {
    return count_and_update(participant_, updater_, {&whole, 1}, t_read, stores_);
  }
  return load_and_update(participant_, updater_, {&whole, 1}, persistence_, t_read, stores_);
}

}  // namespace leashed
