#include "leashed/data/standard_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace leashed {
namespace {

constexpr std::size_t kTogether = 256;

}  // namespace

void NumberMoments::merge(const NumberMoments& more) {
  if (more.rows == 0) return;
  const auto before = static_cast<double>(rows), added = static_cast<double>(more.rows);
  for (std::size_t j = 0; j < mean.size(); ++j) {
    const double apart = more.mean[j] - mean[j];
    mean[j] += apart * (added / (before + added));
    squares[j] += more.squares[j] + apart * apart * (before * added / (before + added));
  }
  rows += more.rows;
}

void NumberScales::apply(const float* row, float* to) const {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (std::size_t j = 0; j < mean.size(); ++j) {
    const double found = (static_cast<double>(row[j]) - mean[j]) * factor[j];
    to[j] = static_cast<float>(std::clamp(found, -kMost, kMost));
  }
}

StandardNumbers::StandardNumbers(std::vector<bool> which, NumberMoments begun)
    : which_(std::move(which)),
      total_(std::move(begun)),
      about_(which_.size()),
      sums_(which_.size()),
      squares_(which_.size()),
      next_(kTogether),
      ready_(total_.rows > 0) {
  total_.mean.resize(which_.size());
  total_.squares.resize(which_.size());
  if (ready_) publish(0);
}

void StandardNumbers::add(const float* x, std::size_t rows) {
  if (finished_) return;
  const std::size_t columns = which_.size();
  for (std::size_t i = 0; i < rows; ++i, x += columns) {
    if (added_ == 0) std::copy_n(x, columns, about_.data());
    for (std::size_t j = 0; j < columns; ++j) {
      const double apart = static_cast<double>(x[j]) - about_[j];
      sums_[j] += apart;
      squares_[j] += apart * apart;
    }
    ++seen_;
    if (++added_ < kTogether) continue;
    settle();
    if (seen_ < next_) continue;
    publish(ready_ ? seen_ : 0);
    ready_ = true;
    const std::uint64_t eighth = (seen_ / 8 + kTogether - 1) / kTogether * kTogether;
    next_ = seen_ + std::max<std::uint64_t>(kTogether, eighth);
  }
}

void StandardNumbers::finish() {
  if (std::exchange(finished_, true)) return;
  settle();
  publish(ready_ ? seen_ : 0);
  ready_ = true;
}

void StandardNumbers::settle() {
  if (added_ == 0) return;
  const auto n = static_cast<double>(added_);
  NumberMoments own{added_, about_, squares_};
  for (std::size_t j = 0; j < which_.size(); ++j) {
    own.mean[j] += sums_[j] / n;
    own.squares[j] = std::max(0.0, squares_[j] - sums_[j] * sums_[j] / n);
  }
  {
    const std::lock_guard lock(mutex_);  // moments() tells of it before anything is published
    total_.merge(own);
  }
  std::fill(sums_.begin(), sums_.end(), 0.0);
  std::fill(squares_.begin(), squares_.end(), 0.0);
  added_ = 0;
}

void StandardNumbers::publish(std::uint64_t first) {
  auto scales = std::make_shared<NumberScales>(
      NumberScales{std::vector<double>(which_.size()), std::vector<double>(which_.size(), 1.0)});
  for (std::size_t j = 0; j < which_.size(); ++j) {
    if (!which_[j] || total_.rows == 0) continue;
    scales->mean[j] = total_.mean[j];
    const double deviation = std::sqrt(total_.squares[j] / static_cast<double>(total_.rows));
    if (deviation > 0) scales->factor[j] = 1 / deviation;
  }
  const std::lock_guard lock(mutex_);
  entries_.push_back({first, total_, std::move(scales)});
}

const StandardNumbers::Entry& StandardNumbers::entry(std::uint64_t row) const {
  return *std::prev(std::upper_bound(entries_.begin() + 1, entries_.end(), row,
                                     [](std::uint64_t r, const Entry& e) { return r < e.first; }));
}

void StandardNumbers::scale(float* x, std::uint64_t first, std::size_t rows) const {
  const std::size_t columns = which_.size();
  for (std::size_t done = 0; done < rows;) {
    std::shared_ptr<const NumberScales> by;
    std::uint64_t end = first + rows;
    {
      const std::lock_guard lock(mutex_);
      const Entry* const found = &entry(first + done);
      by = found->scales;
      if (found != &entries_.back()) end = std::min(end, found[1].first);
    }
    for (; first + done < end; ++done, x += columns) by->apply(x, x);
  }
}

void StandardNumbers::reach(std::uint64_t row) {
  const std::lock_guard lock(mutex_);
  reached_ = std::max(reached_, row);
}

std::uint64_t StandardNumbers::reached() const {
  const std::lock_guard lock(mutex_);
  return reached_;
}

NumberMoments StandardNumbers::moments(std::uint64_t row) const {
  const std::lock_guard lock(mutex_);
  return entries_.empty() ? total_ : entry(row).moments;
}

std::shared_ptr<const NumberScales> StandardNumbers::scales() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty() ? nullptr : entry(reached_).scales;
}

}  // namespace leashed
