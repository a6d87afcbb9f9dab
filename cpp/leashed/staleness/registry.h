// Staleness policies by name; a new one is a class in its own file and one line in registry.cc.
#pragma once

#include <memory>

#include "leashed/base/choice.h"
#include "leashed/staleness/policy.h"

namespace leashed {

std::unique_ptr<const StalenessPolicy> make_staleness(const Choice& choice);

// ρ = 1.
const StalenessPolicy& no_staleness_policy();

}  // namespace leashed
