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
  std::vector<std::int32_t> fields = {};  // libffm: of each column
  std::int32_t classes = 2;               // labels are below, of two −1 is 0; 0: there are values
};

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
