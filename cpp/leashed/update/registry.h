// Update rules by name; a new one is its own file and one line in registry.cc.
#pragma once

#include <memory>

#include "leashed/base/choice.h"
#include "leashed/update/rule.h"

namespace leashed {

std::unique_ptr<Rule> make_rule(const Choice& choice);

}  // namespace leashed
