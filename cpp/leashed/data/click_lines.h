// Generated clicks as lines of Criteo's text: the label, 13 counts, and the ids as 8 hexadecimal
// digits, apart by tabs. A count that is missing is empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "leashed/data/clicks.h"

namespace leashed {

// Rows [first, first + count) of the day, whose ids must be below 2³²; on at most so many threads.
std::string click_lines(const ClickGenerator& clicks, ClickGenerator::Stream stream,
                        std::uint64_t first, std::size_t count, std::size_t threads);

}  // namespace leashed
