// How many a test is to try.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace leashed {

// As many as the variable of the environment has it, or a few.
inline std::uint64_t asked_for(const char* variable, std::uint64_t few) {
  const char* const asked = std::getenv(variable);
  return asked ? std::strtoull(asked, nullptr, 10) : few;
}

}  // namespace leashed
