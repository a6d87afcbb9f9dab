// Instruction-set levels. Each kernel source is compiled once per level
// (cmake/InstructionSets.cmake) and exports one table of function pointers; `Isa` names the level
// whose table is used.
#pragma once

#include <string_view>
#include <vector>

namespace leashed {

enum class Isa { v2, v3, v4, neon };

// The levels that this build has and this CPU can run, slowest first; never empty.
const std::vector<Isa>& available_isas();

// The level used by default: the last of available_isas(), or the one that the environment variable
// LEASHED_ISA names (v2, v3, v4, neon), read once. Throws Error if it names none that is available.
Isa default_isa();

std::string_view isa_name(Isa isa);
Isa parse_isa(std::string_view name);

}  // namespace leashed
