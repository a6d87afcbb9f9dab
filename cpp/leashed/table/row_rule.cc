#include "leashed/table/row_rule.h"

#include <cmath>

#include "leashed/base/error.h"
#include "leashed/table/row_rules.h"
#include "leashed/update/registry.h"

namespace leashed {

struct RowRule::Entry {
  Arithmetic place;
  std::size_t states, squares;
  bool rowwise;
};

namespace {

template <class Rule>
constexpr bool kIsRowwise = requires {
  Rule::kRowwise;
};

template <class Entry, class... All>
std::map<std::string, Entry> entries_of(RuleList<All...>) {
  return {{All::kName,
           {Arithmetic{RowRules::place<All>()}, All::kStates, All::kSquares, kIsRowwise<All>}}...};
}

// The vector's rule of the same settings, without SWAP.
std::unique_ptr<const Rule> vector_rule(Choice choice) {
  if (choice.name == RowwiseAdagrad::kName) choice.name = Adagrad::kName;
  choice.parts.erase("swap");
  return make_rule(choice);
}

}  // namespace

RowRule::RowRule(const Choice& choice) {
  static const std::map<std::string, Entry> kEntries = entries_of<Entry>(RowRules{});
  const std::string moves = " would have to move rows of a table that no gradient touches; ";
  if (!kEntries.contains(choice.name)) {
    std::string known;
    for (const auto& [name, entry] : kEntries) known += (known.empty() ? "" : ", ") + name;
    throw Error(choice.name + moves + "choose one of: " + known);
  }
  if (std::isfinite(choice.value("clip_norm", std::numeric_limits<double>::infinity()))) {
    throw Error(
        "clip_norm is of the whole gradient, which the rows of a table do not see; use "
        "clip_value");
  }
  const auto& [place, states, squares, rowwise] = kEntries.at(choice.name);
  states_ = states;
  rowwise_ = rowwise;
  pass_ = row_kernels().passes[static_cast<std::size_t>(place)];
  if (choice.parts.contains("swap")) {
    if (squares == 0) throw Error(choice.name + " accumulates no squares that SWAP could decay");
    const Choice& swap = choice.part("swap");
    swap_ = {static_cast<std::uint64_t>(swap["period"]), swap["decay"]};
  }
  if (choice.name == Adam::kName) epsilon_ = static_cast<float>(choice["eps"]);
  rule_ = vector_rule(choice);
}

float RowRule::keep(RowHead& head, std::uint16_t period) const {
  // Relaxed: the exchange decides who decays, and hands nothing over.
  std::uint16_t before = head.period.load(std::memory_order_relaxed);
  while (after(period, before)) {
    if (head.period.compare_exchange_weak(before, period, std::memory_order_relaxed)) {
      return static_cast<float>(std::pow(swap_.decay, static_cast<std::uint16_t>(period - before)));
    }
  }
  return 1;
}

}  // namespace leashed
