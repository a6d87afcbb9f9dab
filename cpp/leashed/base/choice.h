// A named choice with what belongs to it, as it comes from Python: numbers, tables of numbers, and
// further choices, such as a rule's schedule.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "leashed/base/error.h"

namespace leashed {

struct Choice {
  std::string name;
  std::map<std::string, double> settings = {};
  std::map<std::string, std::vector<double>> tables = {};
  std::map<std::string, Choice> parts = {};

  double operator[](const std::string& key) const { return find(settings, key); }
  double value(const std::string& key, double otherwise) const {
    const auto found = settings.find(key);
    return found == settings.end() ? otherwise : found->second;
  }
  const std::vector<double>& table(const std::string& key) const { return find(tables, key); }
  const Choice& part(const std::string& key) const { return find(parts, key); }

 private:
  template <class T>
  const T& find(const std::map<std::string, T>& in, const std::string& key) const {
    const auto found = in.find(key);
    if (found == in.end()) throw Error(name + " needs a value for '" + key + "'");
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
