// Disciplines by name; a new one is its own file and one line in registry.cc.
#pragma once

#include <memory>

#include "leashed/base/choice.h"
#include "leashed/discipline/context.h"
#include "leashed/discipline/discipline.h"

namespace leashed {

std::unique_ptr<Discipline> make_discipline(const Choice& choice, const DisciplineContext& context);

}  // namespace leashed
