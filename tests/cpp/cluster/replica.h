// One trainer's theta, for tests that train nothing.
#pragma once

#include <memory>
#include <vector>

#include "leashed/discipline/registry.h"
#include "leashed/update/registry.h"

namespace leashed {

class Replica {
 public:
  explicit Replica(const std::vector<float>& initial, const Choice& discipline = {"locked"})
      : rule_(make_rule({"sgd", {{"lr", 1}}})),
        discipline_(make_discipline(discipline, context(initial, *rule_))),
        dimension_(initial.size()) {}

  Discipline& discipline() { return *discipline_; }
  std::vector<float> theta() {
    std::vector<float> theta, copy(dimension_);
    discipline_->look(copy.data(), [&](const float* now) { theta.assign(now, now + dimension_); });
    return theta;
  }
  void set(const std::vector<float>& theta) {
    discipline_->transform(0, dimension_, [&](float* values, std::size_t begin, std::size_t end) {
      std::copy(theta.begin() + static_cast<std::ptrdiff_t>(begin),
                theta.begin() + static_cast<std::ptrdiff_t>(end), values);
    });
  }

 private:
  static DisciplineContext context(const std::vector<float>& initial, const Rule& rule) {
    DisciplineContext context{initial.data(), initial.size(), 1, 1, rule};
    context.synchronisers = 4;  // one exchange within another
    return context;
  }
  const std::unique_ptr<Rule> rule_;
  const std::unique_ptr<Discipline> discipline_;
  const std::size_t dimension_;
};

}  // namespace leashed
