// A state that is written down and read back: one function of its owner names its parts for both,
// in their order.
//
//   void visit(Archive& archive) { archive(first_, second_); }
//
// What is read may be anything, so nothing is believed: numbers have to fit, sizes to be of what is
// there, and places to be places. Error says that it is damaged.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "leashed/base/error.h"

namespace leashed {

struct Archived {
  std::vector<std::uint64_t> words;
  std::vector<float> vectors;  // of the parameters' length, one after another
};

class Archive;

template <class T>
concept Visited = requires(T& part, Archive& archive) {
  part.visit(archive);
};

class Archive {
 public:
  explicit Archive(Archived& to) : to_(&to) {}
  explicit Archive(const Archived& from) : from_(&from) {}

  bool reads() const { return from_ != nullptr; }
  template <class... Parts>
  void operator()(Parts&... parts) {
    (part(parts), ...);
  }
  // One for each of those that are there: as many as now.
  template <class T>
  void of_each(std::vector<T>& parts) {
    const std::size_t size = parts.size();
    part(parts);
    require(parts.size() == size);
  }
  void vector(float* values, std::size_t n) {
    if (!reads()) {
      to_->vectors.insert(to_->vectors.end(), values, values + n);
      return;
    }
    require(n <= from_->vectors.size() - floats_);
    std::copy_n(from_->vectors.data() + floats_, n, values);
    floats_ += n;
  }
  // Floats that are no vector of the parameters.
  void floats(float* values, std::size_t n) {
    for (std::size_t i = 0; i < n; i += kFloats) {
      const std::size_t bytes = std::min(kFloats, n - i) * sizeof(float);
      std::uint64_t word = 0;
      if (!reads()) std::memcpy(&word, values + i, bytes);
      part(word);
      if (reads()) std::memcpy(values + i, &word, bytes);
    }
  }
  void require(bool holds) const {
    if (!holds) throw Error("what the checkpoint has of the mode is damaged; use another one");
  }
  // What somebody else has by its place here: by place a number of its own.
  void expect(std::vector<std::uint64_t> numbers) { expected_ = std::move(numbers); }
  const std::vector<std::uint64_t>& expected() const { return expected_; }
  // All has been read.
  void finish() const {
    require(words_ == from_->words.size() && floats_ == from_->vectors.size());
  }
  // Whether so many numbers or more are left, which bounds what may be made of them.
  bool has(std::uint64_t words) const { return words <= from_->words.size() - words_; }

 private:
  static constexpr std::size_t kFloats = sizeof(std::uint64_t) / sizeof(float);

  void part(std::uint64_t& value) {
    if (!reads()) return to_->words.push_back(value);
    require(has(1));
    value = from_->words[words_++];
  }
  template <class T>
  requires(std::integral<T> || std::is_enum_v<T>) void part(T& value) {
    auto word = static_cast<std::uint64_t>(value);
    part(word);
    if (!reads()) return;
    value = static_cast<T>(word);
    require(static_cast<std::uint64_t>(value) == word);
  }
  void part(double& value) {
    auto word = std::bit_cast<std::uint64_t>(value);
    part(word);
    value = std::bit_cast<double>(word);
  }
  template <Visited T>
  void part(T& value) {
    value.visit(*this);
  }
  template <class T>
  void part(std::vector<T>& values) {
    std::uint64_t size = values.size();
    part(size);
    if (reads()) {
      require(has(size));  // each is a word at least
      values.resize(size);
    }
    for (std::size_t i = 0; i < size; ++i) {
      if constexpr (std::same_as<T, bool>) {
        bool one = values[i];
        part(one);
        values[i] = one;
      } else {
        part(values[i]);
      }
    }
  }

  Archived* const to_ = nullptr;
  const Archived* const from_ = nullptr;
  std::size_t words_ = 0, floats_ = 0;  // that have been read
  std::vector<std::uint64_t> expected_;
};

}  // namespace leashed
