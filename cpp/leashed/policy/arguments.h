// Reads the arguments of a choice: each with its bounds, and at the end none that nobody knows.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "leashed/base/choice.h"

namespace leashed::modes {

class Arguments {
 public:
  explicit Arguments(const Choice& choice) : choice_(choice) {}

  double number(const std::string& key, std::optional<double> otherwise, double least,
                double most) {
    known_.insert(key);
    const double value = otherwise ? choice_.value(key, *otherwise) : choice_[key];
    if (value >= least && value <= most) return value;
    throw Error(choice_.name + ": '" + key + "' must be from " + text(least) + " to " + text(most) +
                ", not " + text(value));
  }

  std::uint64_t whole(const std::string& key, std::optional<double> otherwise, double least,
                      double most = 0x1p53) {
    const double value = number(key, otherwise, least, most);
    if (value == std::floor(value)) return static_cast<std::uint64_t>(value);
    throw Error(choice_.name + ": '" + key + "' must be a whole number, not " + text(value));
  }
  std::uint32_t count(const std::string& key, std::optional<double> otherwise, double least = 1) {
    return static_cast<std::uint32_t>(
        whole(key, otherwise, least, std::numeric_limits<std::uint32_t>::max()));
  }
  bool flag(const std::string& key) { return whole(key, 0, 0, 1) != 0; }

  void finish() const {
    for (const auto& [key, value] : choice_.settings) {
      if (known_.count(key) != 0) continue;
      std::string known;
      for (const std::string& name : known_) known += (known.empty() ? "" : ", ") + name;
      throw Error(choice_.name + " has no argument '" + key + "'; it has: " + known);
    }
  }

  static std::string text(double value) {
    std::string digits = std::to_string(value);
    if (digits.find('.') == std::string::npos) return digits;
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
    return digits;
  }

 private:
  const Choice& choice_;
  std::set<std::string> known_;
};

}  // namespace leashed::modes
