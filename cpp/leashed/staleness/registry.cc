#include "leashed/staleness/registry.h"

#include <limits>

#include "leashed/staleness/adaptive.h"
#include "leashed/staleness/damping.h"
#include "leashed/staleness/stage_aware.h"
#include "leashed/staleness/table.h"
#include "leashed/staleness/tau_normalized.h"

namespace leashed {
namespace {

using Pointer = std::unique_ptr<const StalenessPolicy>;
using Factory = Pointer (*)(const Choice&);

constexpr double kMeasured = std::numeric_limits<double>::quiet_NaN();

const std::map<std::string, Factory> kPolicies = {
    {"none", [](const Choice&) -> Pointer { return std::make_unique<Undamped>(); }},
    {"power", [](const Choice& c) -> Pointer { return std::make_unique<PowerDamping>(c["k"]); }},
    {"normalized",
     [](const Choice& c) -> Pointer {
       return std::make_unique<NormalizedDamping>(c["mu"], c["k"], c["as_printed"] != 0);
     }},
    {"cutoff", [](const Choice& c) -> Pointer { return std::make_unique<Cutoff>(c["iota"]); }},
    {"tau_normalized",
     [](const Choice& c) -> Pointer {
       return std::make_unique<TauNormalized>(
           c.value("mean", kMeasured), c.value("deviation", kMeasured),
           c.value("baseline_mean", kMeasured), c["baseline_deviation"]);
     }},
    {"stage_aware",
     [](const Choice& c) -> Pointer {
       return std::make_unique<StageAware>(make_staleness(c.part("policy")), c["lam"],
                                           c.value("as_printed", 0) != 0);
     }},
    {"tail_tau",
     [](const Choice& c) -> Pointer {
       return std::make_unique<TailTau>(c["amplitude"], static_cast<std::uint64_t>(c["warmup"]));
     }},
    {"fleet",
     [](const Choice& c) -> Pointer {
       return std::make_unique<Fleet>(c["threshold"], c["percentile"]);
     }},
    {"mindthestep",
     [](const Choice& c) -> Pointer {
       return std::make_unique<MindTheStep>(c["mean"], c["momentum"], c["bound"], c["scaled"] != 0);
     }},
    {"table",
     [](const Choice& c) -> Pointer { return std::make_unique<TableDamping>(c.table("values")); }},
};

}  // namespace

std::unique_ptr<const StalenessPolicy> make_staleness(const Choice& choice) {
  return find_choice(kPolicies, "staleness policy", choice.name)(choice);
}

const StalenessPolicy& no_staleness_policy() {
  static const Undamped none;
  return none;
}

}  // namespace leashed
