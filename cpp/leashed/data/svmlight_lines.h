// The svmlight and libffm formats as a stream reads them: rows with one feature, any number of
// columns, whose values are the ids' weights. What is only known of a whole file must be said
// before: how many columns there are, which is the first, how many classes, of what field a column
// is.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "leashed/data/svmlight.h"
#include "leashed/data/text_origin.h"

namespace leashed {

struct SvmlightSettings {
  RowFormat format = RowFormat::svmlight;
  std::int32_t first = 1;                 // the number of the first column, which becomes 0
  std::size_t features = 0;               // columns there are
  std::vector<std::int32_t> fields = {};  // libffm: of each column; empty: it may be any
  std::int32_t classes = 2;               // labels are below, of two −1 is 0; 0: there are values
  // Whether a column that comes again in a row is added to where it came first.
  bool distinct_columns = false;
  // libffm: whether ids are field << kFieldShift | column, for who wants to know the fields.
  bool tells_fields = false;
};

inline constexpr int kFieldShift = 32;

class SvmlightLines final : public LineFormat {
 public:
  explicit SvmlightLines(SvmlightSettings settings)
      : settings_(std::make_shared<const SvmlightSettings>(std::move(settings))) {}
  std::shared_ptr<const LineParser> begin(std::string_view& lines) const override;
  RowLayout layout() const;

 private:
  const std::shared_ptr<const SvmlightSettings> settings_;
};

}  // namespace leashed
