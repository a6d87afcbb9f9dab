#include "leashed/discipline/registry.h"

#include "leashed/discipline/hogwild.h"
#include "leashed/discipline/leashed.h"
#include "leashed/discipline/locked.h"
#include "leashed/discipline/sequential.h"
#include "leashed/discipline/synchronous.h"

namespace leashed {
namespace {

using Context = DisciplineContext;
using Factory = std::unique_ptr<Discipline> (*)(const Choice&, const Context&);

template <class Kind>
std::unique_ptr<Discipline> plain(const Choice&, const Context& c) {
  return std::make_unique<Kind>(c);
}

std::unique_ptr<Discipline> sequential(const Choice&, const Context& c) {
  if (c.workers != 1) {
    throw Error("threads is " + std::to_string(c.workers) + ", but Sequential takes 1");
  }
  return std::make_unique<Sequential>(c);
}

std::unique_ptr<Discipline> hogwild(const Choice& choice, const Context& c) {
  return std::make_unique<Hogwild>(c, choice["copy"] != 0);
}

std::unique_ptr<Discipline> leashed(const Choice& choice, const Context& c) {
  return std::make_unique<LeashedSgd>(c, persistence_bound(choice["persistence"]));
}

const std::map<std::string, Factory> kDisciplines = {
    {"hogwild", hogwild},
    {"leashed", leashed},
    {"locked", plain<Locked>},
    {"sequential", sequential},
    {"synchronous", plain<Synchronous>},
};

}  // namespace

std::unique_ptr<Discipline> make_discipline(const Choice& choice,
                                            const DisciplineContext& context) {
  return find_choice(kDisciplines, "discipline", choice.name)(choice, context);
}

}  // namespace leashed
