// Rows in memory where a stream's are asked for, again and again.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "leashed/data/row_origin.h"

namespace leashed {

class RepeatedRows final : public RowOrigin {
 public:
  explicit RepeatedRows(RowBlock rows) : rows_(std::move(rows)) {}

  std::unique_ptr<Part> next(const std::atomic<bool>&) override {
    return std::exchange(handed_out_, true) ? nullptr : std::make_unique<All>(rows_);
  }
  bool rewind() override {
    handed_out_ = false;
    return true;
  }
  const std::vector<std::string>& names() const override { return names_; }
  const char* unit() const override { return "row"; }

 private:
  struct All final : Part {
    explicit All(const RowBlock& all) : rows(all) {}
    ParsedRows parse() const override { return {rows}; }

    const RowBlock& rows;
  };

  const RowBlock rows_;
  const std::vector<std::string> names_ = {"rows in memory"};
  bool handed_out_ = false;
};

}  // namespace leashed
