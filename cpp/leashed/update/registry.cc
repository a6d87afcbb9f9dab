#include "leashed/update/registry.h"

#include "leashed/update/sgd.h"

namespace leashed {
namespace {

using Factory = std::unique_ptr<Rule> (*)(const Choice&);

const std::map<std::string, Factory> kRules = {
    {"sgd",
     [](const Choice& choice) -> std::unique_ptr<Rule> {
       return std::make_unique<Sgd>(static_cast<float>(choice["lr"]));
     }},
};

}  // namespace

std::unique_ptr<Rule> make_rule(const Choice& choice) {
  return find_choice(kRules, "rule", choice.name)(choice);
}

}  // namespace leashed
