// Update rules by name (rules.h).
#pragma once

#include <memory>

#include "leashed/base/choice.h"
#include "leashed/update/rule.h"

namespace leashed {

// `workers` is what a schedule may scale the learning rate by.
std::unique_ptr<Rule> make_rule(const Choice& choice, std::size_t workers = 1);

}  // namespace leashed
