// The svmlight (libsvm) text format: one row a line, `target column:value column:value …`, fields
// apart by spaces or tabs, `#` begins a comment, and a field `qid:…` is passed over. And libffm's,
// where each column is of a field: `target field:column:value …`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace leashed {

struct SvmlightRows {
  std::vector<double> targets;
  std::vector<std::int64_t> offsets = {0};
  std::vector<std::int32_t> columns;  // as they stand in the text
  std::vector<float> values;
  std::vector<std::int32_t> fields;  // of each value, where the format has them
};

enum class RowFormat { svmlight, libffm };

// Appends the row of a line, which has no newline; a line that is empty but for a comment has none.
// Throws Error "column C: …" (from 1) where it is no such line, which may have been appended in
// part: a column is negative or beyond 2^31 − 2, or a field is, or a number is not finite.
void add_svmlight_row(std::string_view line, RowFormat format, SvmlightRows& rows);

}  // namespace leashed
