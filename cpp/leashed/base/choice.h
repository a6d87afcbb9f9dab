// A named choice with its numbers, as it comes from Python: {"persistence": 1} and the like.
#pragma once

#include <map>
#include <string>

#include "leashed/base/error.h"

namespace leashed {

struct Choice {
  std::string name;
  std::map<std::string, double> settings;

  double operator[](const std::string& key) const {
    const auto found = settings.find(key);
    if (found == settings.end()) throw Error(name + " needs a value for '" + key + "'");
    return found->second;
  }
};

// Looks a name up in a registry of factories; throws Error naming what there is.
template <class Registry>
const auto& find_choice(const Registry& registry, const char* kind, const std::string& name) {
  const auto found = registry.find(name);
  if (found != registry.end()) return found->second;
  std::string known;
  for (const auto& [key, factory] : registry) known += (known.empty() ? "" : ", ") + key;
  throw Error("unknown " + std::string(kind) + " '" + name + "'; choose one of: " + known);
}

}  // namespace leashed
