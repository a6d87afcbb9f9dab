// Rows that follow each other in a stream, and the memory that they lie in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leashed/data/dataset_view.h"

namespace leashed {

// What a stream's rows are made of.
struct RowLayout {
  std::size_t numbers = 0;
  std::vector<bool> bags = {};  // of each feature that is ids: whether a row has any number of them
  bool classes = true;          // labels; else values,
  std::size_t values = 1;       // so many
  bool weights = false;
  bool id_weights = false;  // whether each id of a bag has a weight
  // Of sparse rows, whose one bag has their columns, and these for weights their values: how many
  // columns there are. 0: rows are not sparse.
  std::size_t columns = 0;
  bool distinct_columns = false;  // whether none of them has a column twice

  std::size_t single_ids() const;
};

class RowBlock {
 public:
  struct Bag {
    std::vector<std::uint64_t> ids;
    std::vector<std::int64_t> offsets = {0};
    std::vector<float> weights;  // of each id, where the layout says so
  };

  RowBlock() = default;
  explicit RowBlock(const RowLayout& layout);

  std::size_t rows() const { return rows_; }
  // Room for so many rows, whose values are to be written below; bags are appended to.
  void resize(std::size_t rows);
  void clear();
  // Copies of another's rows [begin, end), of the same layout.
  void append(const RowBlock& from, std::size_t begin, std::size_t end);
  // Feature by feature; while this is neither changed nor gone.
  void features(std::vector<IdFeature>& to) const;
  Targets targets() const;

  std::vector<float> x;            // [rows][numbers]
  std::vector<std::uint64_t> ids;  // [rows][features with one id a row]
  std::vector<Bag> bags;           // of the other features
  std::vector<std::int32_t> labels;
  std::vector<float> values, weights;

 private:
  RowLayout layout_;
  std::size_t rows_ = 0, single_ids_ = 0;
};

}  // namespace leashed
