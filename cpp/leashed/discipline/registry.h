// Disciplines by name; a new one is its own file and one line in registry.cc.
#pragma once

#include <memory>

#include "leashed/base/choice.h"
#include "leashed/discipline/discipline.h"
#include "leashed/update/rule.h"

namespace leashed {

struct DisciplineContext {
  const float* initial;  // [dimension], copied
  std::size_t dimension;
  std::size_t workers;
  std::size_t readers;  // that may hold a snapshot besides the workers
  const Rule& rule;     // must outlive the discipline
};

std::unique_ptr<Discipline> make_discipline(const Choice& choice, const DisciplineContext& context);

}  // namespace leashed
