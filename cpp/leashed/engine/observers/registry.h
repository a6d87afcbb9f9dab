// Observers that are chosen by name: who only looks on.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/engine/step_observer.h"

namespace leashed {

// Of so many workers, in that order. Throws Error where there is no such name, where one has other
// settings or takes other values, or comes twice: what it finds is told by its name.
std::vector<std::unique_ptr<StepObserver>> make_observers(const std::vector<Choice>& choices,
                                                          std::size_t workers);

// What goes into a training's options.
std::vector<StepObserver*> pointers(const std::vector<std::unique_ptr<StepObserver>>& observers);

// Of all that there are, by name.
std::map<std::string, std::vector<std::string>> observer_settings();

}  // namespace leashed
