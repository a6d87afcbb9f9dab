#include "leashed/data/svmlight_lines.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/data/parse_number.h"

namespace leashed {
namespace {

RowLayout layout_of(const SvmlightSettings& settings) {
  return {.bags = {true},
          .classes = settings.classes > 0,
          .id_weights = true,
          .columns = settings.tells_fields ? 0 : settings.features,
          .distinct_columns = settings.distinct_columns};
}

// What DistinctColumns does, of a row: its entries from `first` on.
void join_repeated(SvmlightRows& rows, std::size_t first) {
  const std::size_t count = rows.columns.size() - first;
  std::int32_t* const columns = rows.columns.data() + first;
  float* const values = rows.values.data() + first;
  if (std::adjacent_find(columns, columns + count, std::greater_equal<>()) == columns + count) {
    return;  // as files have them, nearly always
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t j) { return std::pair(columns[j], j); });
  std::vector<bool> again(count);
  for (std::size_t i = 1, put = 0; i < count; ++i) {
    const std::size_t place = order[i];
    again[place] = columns[place] == columns[order[put]];
    if (again[place]) {
      values[order[put]] += values[place];
    } else {
      put = i;
    }
  }
  std::size_t to = 0;
  for (std::size_t j = 0; j < count; ++j) {
    if (again[j]) continue;
    columns[to] = columns[j];
    values[to++] = values[j];
  }
  rows.columns.resize(first + to);
  rows.values.resize(first + to);
  if (!rows.fields.empty()) rows.fields.resize(first + to);
  rows.offsets.back() = static_cast<std::int64_t>(first + to);
}

std::string shown(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

class SvmlightLineParser final : public LineParser {
 public:
  explicit SvmlightLineParser(std::shared_ptr<const SvmlightSettings> settings)
      : settings_(std::move(settings)) {}

  ParsedRows parse(std::string_view lines) const override {
    ParsedRows parsed{RowBlock(layout_of(*settings_))};
    SvmlightRows rows;
    for (std::size_t at = 0; at < lines.size();) {
      ++parsed.lines;
      const std::size_t end = std::min(lines.size(), lines.find('\n', at));
      const std::size_t row = rows.targets.size(), entries = rows.columns.size();
      try {
        add_svmlight_row(lines.substr(at, end - at), settings_->format, rows);
        if (rows.targets.size() > row) accept(rows, row, entries);
      } catch (const Error& error) {
        parsed.reject(parsed.lines, row, error.what());
        rows.targets.resize(row);
        rows.offsets.resize(row + 1);
        rows.columns.resize(entries);
        rows.values.resize(entries);
        rows.fields.resize(std::min(entries, rows.fields.size()));
      }
      at = end + 1;
    }
    fill(parsed.block, std::move(rows));
    return parsed;
  }

 private:
  // Numbers its columns from 0. Throws Error where it does not fit what was said.
  void accept(SvmlightRows& rows, std::size_t row, std::size_t entries) const {
    check_target(rows.targets[row]);
    for (std::size_t j = entries; j < rows.columns.size(); ++j) {
      const std::int32_t given = rows.columns[j], column = given - settings_->first;
      if (column < 0) throw Error("column 0 occurs, but columns are numbered from 1");
      if (static_cast<std::size_t>(column) >= settings_->features) {
        throw Error("column " + std::to_string(given) + " is beyond the " +
                    std::to_string(settings_->features) + " features");
      }
      rows.columns[j] = column;
      if (settings_->fields.empty()) continue;
      if (const std::int32_t field = settings_->fields[column]; rows.fields[j] != field) {
        throw Error("column " + std::to_string(given) + " is of field " +
                    std::to_string(rows.fields[j]) + ", but fields says " + std::to_string(field));
      }
    }
    if (settings_->distinct_columns) join_repeated(rows, entries);
  }

  void check_target(double target) const {
    const std::int32_t classes = settings_->classes;
    if (classes == 0) {
      if (!std::isfinite(static_cast<float>(target))) throw Error("the target is beyond float32");
    } else if (!(target == -1 && classes == 2) && !is_label(target, classes)) {
      throw Error("the label is " + shown(target) +
                  (classes == 2 ? ", not 0 or 1, or -1 and 1"
                                : ", no whole number from 0 below " + std::to_string(classes)));
    }
  }

  void fill(RowBlock& block, SvmlightRows rows) const {
    block.resize(rows.targets.size());
    for (std::size_t i = 0; i < rows.targets.size(); ++i) {
      if (settings_->classes == 0) {
        block.values[i] = static_cast<float>(rows.targets[i]);
      } else {
        block.labels[i] = std::max(0, static_cast<std::int32_t>(rows.targets[i]));
      }
    }
    RowBlock::Bag& bag = block.bags.front();
    bag.ids.assign(rows.columns.begin(), rows.columns.end());
    if (settings_->tells_fields) {
      for (std::size_t j = 0; j < bag.ids.size(); ++j) {
        bag.ids[j] |= static_cast<std::uint64_t>(rows.fields[j]) << kFieldShift;
      }
    }
    bag.offsets = std::move(rows.offsets);
    bag.weights = std::move(rows.values);
  }

  const std::shared_ptr<const SvmlightSettings> settings_;
};

}  // namespace

RowLayout SvmlightLines::layout() const { return layout_of(*settings_); }

std::shared_ptr<const LineParser> SvmlightLines::begin(std::string_view&) const {
  return std::make_shared<const SvmlightLineParser>(settings_);
}

}  // namespace leashed
