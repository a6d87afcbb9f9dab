// Text of which each line is a row and its fields are apart by one character: Criteo's files, CSV.
// A field may stand in double quotes, with doubled quotes within; a line ends at every newline.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leashed/data/id_encoder.h"
#include "leashed/data/text_origin.h"

namespace leashed {

// A column that is read, and what it becomes. Numbers, heads and ids come in the order of the
// columns. A head is one label of several, 0 or 1, or nothing where it is not known: a value of
// NaN.
struct DelimitedColumn {
  enum class Kind { label, head, target, weight, number, id, ids };
  std::string name;
  Kind kind;
  bool log = false;                   // number: ln(1 + max(x, 0)) of it
  std::optional<float> missing = {};  // number: of an empty field; else that is an error
  IdEncoder encoder = {};
  char between = ' ';  // ids: what they are apart by
};

struct DelimitedSettings {
  enum class Header { none, present, detected };
  std::vector<DelimitedColumn> columns;
  std::string separators;  // one, or several among which each file's is found
  Header header = Header::present;
  std::vector<std::string> names;  // of all fields of a line, where there is no header
  bool quotes = true;
  std::int32_t classes = 2;  // labels are below; 0: there is a target, or heads
  // Where rows are read without what they are to give, which may not be there: what it is called
  // among `names`. A file without a header whose first line has one field fewer lacks it.
  std::string target = {};
};

RowLayout layout_of(const DelimitedSettings& settings);
// The beginning of what may be any bytes, for a message, as Python shows bytes.
std::string quoted(std::string_view text);

class Delimited final : public LineFormat {
 public:
  explicit Delimited(DelimitedSettings settings);
  std::shared_ptr<const LineParser> begin(std::string_view& lines) const override;
  const RowLayout& layout() const { return layout_; }

 private:
  char separator_of(std::string_view line) const;

  const std::shared_ptr<const DelimitedSettings> settings_;
  const RowLayout layout_;
};

}  // namespace leashed
