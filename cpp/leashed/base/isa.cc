#include "leashed/base/isa.h"

#include <cstdlib>
#include <string>

#include "leashed/base/error.h"

namespace leashed {

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> found;
#if defined(LEASHED_ONE_ISA)
    found.push_back(Isa::LEASHED_ONE_ISA);
#else
    found.push_back(Isa::v2);
    if (__builtin_cpu_supports("x86-64-v3")) found.push_back(Isa::v3);
    if (__builtin_cpu_supports("x86-64-v4")) found.push_back(Isa::v4);
#endif
    return found;
  }();
  return isas;
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return "v2";
    case Isa::v3:
      return "v3";
    case Isa::v4:
      return "v4";
    case Isa::neon:
      return "neon";
  }
  return "?";
}

Isa parse_isa(std::string_view name) {
  std::string known;
  for (Isa isa : available_isas()) {
    if (name == isa_name(isa)) return isa;
    known += (known.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  throw Error("isa '" + std::string(name) +
              "' is not available on this machine; choose one of: " + known);
}

Isa default_isa() {
  static const Isa isa = [] {
    const char* forced = std::getenv("LEASHED_ISA");
    return forced && *forced ? parse_isa(forced) : available_isas().back();
  }();
  return isa;
}

}  // namespace leashed
