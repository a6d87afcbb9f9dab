#include "leashed/engine/observers/registry.h"

#include <algorithm>

#include "leashed/engine/observers/gradient_norms.h"

namespace leashed {
namespace {

struct Kind {
  std::vector<std::string> settings;
  std::unique_ptr<StepObserver> (*make)(const Choice& choice, std::size_t workers);
};

template <class Observer>
std::unique_ptr<StepObserver> made(const Choice& choice, std::size_t workers) {
  return std::make_unique<Observer>(choice, workers);
}

const std::map<std::string, Kind> kObservers = {
    {"gradient_norms", {{}, made<GradientNorms>}},
};

void check(const Choice& choice, const std::vector<std::string>& settings) {
  for (const std::string& name : settings) choice[name];  // says which is missing
  for (const auto& [name, value] : choice.settings) {
    if (std::ranges::find(settings, name) == settings.end()) {
      throw Error(choice.name + " has no setting '" + name + "'; leave it out");
    }
  }
}

}  // namespace

std::vector<std::unique_ptr<StepObserver>> make_observers(const std::vector<Choice>& choices,
                                                          std::size_t workers) {
  std::vector<std::unique_ptr<StepObserver>> all;
  for (const Choice& choice : choices) {
    const Kind& kind = find_choice(kObservers, "observer", choice.name);
    check(choice, kind.settings);
    const auto same = [&](const Choice& other) { return other.name == choice.name; };
    if (std::ranges::count_if(choices, same) > 1) {
      throw Error(choice.name + " is given twice; leave one of the two out");
    }
    all.push_back(kind.make(choice, workers));
  }
  return all;
}

std::vector<StepObserver*> pointers(const std::vector<std::unique_ptr<StepObserver>>& observers) {
  std::vector<StepObserver*> all;
  for (const auto& one : observers) all.push_back(one.get());
  return all;
}

std::map<std::string, std::vector<std::string>> observer_settings() {
  std::map<std::string, std::vector<std::string>> all;
  for (const auto& [name, kind] : kObservers) all.emplace(name, kind.settings);
  return all;
}

}  // namespace leashed
