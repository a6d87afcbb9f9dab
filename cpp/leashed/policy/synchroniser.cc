#include "leashed/policy/synchroniser.h"

#include <functional>

namespace leashed {
namespace {

using Registry = std::map<std::string, std::function<Synchroniser(const Choice&)>>;

template <Machine... M>
Registry registry_of(const std::variant<M...>*) {
  return {{M::kName, [](const Choice& choice) -> Synchroniser { return M(choice); }}...};
}

}  // namespace

Synchroniser make_synchroniser(const Choice& choice) {
  static const Registry registry = registry_of(static_cast<const Synchroniser*>(nullptr));
  return find_choice(registry, "synchroniser", choice.name)(choice);
}

}  // namespace leashed
