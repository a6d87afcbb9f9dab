#include "leashed/update/registry.h"

#include "leashed/update/rules.h"

namespace leashed {
namespace {

// A rule of rules.h with what all rules share.
template <class Formula>
class RuleOf final : public Rule {
 public:
  RuleOf(const Choice& choice, RuleOptions options)
      : Rule(kArithmetic<Formula>, std::move(options)), formula_(choice) {}

  float initial_state() const override { return formula_.initial_state(); }
  bool keeps_untouched() const override {
    return Formula::kKeepsUntouched && Rule::keeps_untouched();
  }

 protected:
  void coefficients(double lr, std::uint64_t updates, Coefficients& c) const override {
    formula_.coefficients(lr, updates, c);
  }

 private:
  const Formula formula_;
};

struct Entry {
  std::unique_ptr<Rule> (*make)(const Choice&, RuleOptions);
  std::size_t squares;
};

template <class... All>
std::map<std::string, Entry> entries_of(RuleList<All...>) {
  return {{All::kName,
           {[](const Choice& choice, RuleOptions options) -> std::unique_ptr<Rule> {
              return std::make_unique<RuleOf<All>>(choice, std::move(options));
            },
            All::kSquares}}...};
}

const std::map<std::string, Entry> kEntries = entries_of(Rules{});

}  // namespace

std::unique_ptr<Rule> make_rule(const Choice& choice, std::size_t workers) {
  const auto& [make, squares] = find_choice(kEntries, "rule", choice.name);
  RuleOptions options;
  options.lr = make_schedule(choice, "lr", workers);
  options.weight_decay = choice.value("weight_decay", options.weight_decay);
  options.decoupled = choice.value("decoupled", options.decoupled) != 0;
  options.clip_value = choice.value("clip_value", options.clip_value);
  options.clip_norm = choice.value("clip_norm", options.clip_norm);
  options.maximize = choice.value("maximize", options.maximize) != 0;
  if (choice.parts.contains("swap")) {
    if (squares == 0) throw Error(choice.name + " accumulates no squares that SWAP could decay");
    const Choice& swap = choice.part("swap");
    options.swap = {static_cast<std::uint64_t>(swap["period"]), swap["decay"]};
  }
  if (choice.parts.contains("truncation")) {
    const Choice& part = choice.part("truncation");
    options.truncation = {part["l1"], static_cast<std::size_t>(part["begin"]),
                          static_cast<std::size_t>(part["end"])};
  }
  return make(choice, std::move(options));
}

}  // namespace leashed
