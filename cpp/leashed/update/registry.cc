#include "leashed/update/registry.h"

#include "leashed/update/adagrad.h"
#include "leashed/update/adam.h"
#include "leashed/update/momentum.h"
#include "leashed/update/rmsprop.h"
#include "leashed/update/sgd.h"

namespace leashed {
namespace {

using Pointer = std::unique_ptr<Rule>;
using Factory = Pointer (*)(const Choice&, RuleOptions);

const std::map<std::string, Factory> kRules = {
    {"sgd",
     [](const Choice&, RuleOptions o) -> Pointer { return std::make_unique<Sgd>(std::move(o)); }},
    {"momentum",
     [](const Choice& c, RuleOptions o) -> Pointer {
       return std::make_unique<Momentum>(std::move(o), c["momentum"], false);
     }},
    {"nesterov",
     [](const Choice& c, RuleOptions o) -> Pointer {
       return std::make_unique<Momentum>(std::move(o), c["momentum"], true);
     }},
    {"adagrad",
     [](const Choice& c, RuleOptions o) -> Pointer {
       return std::make_unique<Adagrad>(std::move(o), c["eps"], c["initial_accumulator"]);
     }},
    {"rmsprop",
     [](const Choice& c, RuleOptions o) -> Pointer {
       return std::make_unique<Rmsprop>(std::move(o), c["alpha"], c["eps"]);
     }},
    {"adam",
     [](const Choice& c, RuleOptions o) -> Pointer {
       return std::make_unique<Adam>(std::move(o), c["beta1"], c["beta2"], c["eps"]);
     }},
};

}  // namespace

std::unique_ptr<Rule> make_rule(const Choice& choice, std::size_t workers) {
  const Factory& make = find_choice(kRules, "rule", choice.name);
  RuleOptions options;
  options.lr = make_schedule(choice, "lr", workers);
  options.weight_decay = choice.value("weight_decay", options.weight_decay);
  options.decoupled = choice.value("decoupled", options.decoupled) != 0;
  options.clip_value = choice.value("clip_value", options.clip_value);
  options.clip_norm = choice.value("clip_norm", options.clip_norm);
  if (choice.parts.contains("swap")) {
    const Choice& swap = choice.part("swap");
    options.swap = {static_cast<std::uint64_t>(swap["period"]), swap["decay"]};
  }
  return make(choice, std::move(options));
}

}  // namespace leashed
