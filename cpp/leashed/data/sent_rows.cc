#include "leashed/data/sent_rows.h"

#include <chrono>
#include <iterator>
#include <utility>

namespace leashed {
namespace {

// Of spans by their first position, the one that a position lies in.
template <class Map>
typename Map::const_iterator span_at(const Map& spans, std::uint64_t position) {
  auto found = spans.upper_bound(position);
  return found == spans.begin() ? spans.end() : std::prev(found);
}

}  // namespace

bool SentRows::of_those(std::uint64_t position, const std::vector<bool>& readers) const {
  return readers[position % rows_ / settings_.stripe % settings_.readers];
}

std::uint64_t SentRows::first_missing(std::uint64_t first, std::uint64_t end) const {
  while (first < end) {
    const auto asked = span_at(asked_, first);
    if (asked != asked_.end() && asked->second > first) {
      first = asked->second;
      continue;
    }
    const auto piece = span_at(pieces_, first);
    if (piece == pieces_.end() || piece->first + piece->second.rows.rows() <= first) return first;
    first = piece->first + piece->second.rows.rows();
  }
  return end;
}

std::uint64_t SentRows::reach(std::uint64_t first, std::uint64_t end) const {
  const std::uint64_t row_of_first = first % rows_;
  end = std::min({end, first + settings_.at_once, first + (rows_ - row_of_first),
                  first + (settings_.stripe - row_of_first % settings_.stripe)});
  if (const auto asked = asked_.upper_bound(first); asked != asked_.end()) {
    end = std::min(end, asked->first);
  }
  if (const auto piece = pieces_.upper_bound(first); piece != pieces_.end()) {
    end = std::min(end, piece->first);
  }
  return end;
}

void SentRows::expect_no_more(std::uint64_t first, std::uint64_t end) {
  auto at = expected_.upper_bound(first);
  if (at != expected_.begin()) --at;
  while (at != expected_.end() && at->first < end) {
    const auto [begun, ended] = *at;
    if (ended <= first) {
      ++at;
      continue;
    }
    at = expected_.erase(at);
    if (begun < first) expected_.emplace(begun, first);
    if (ended > end) expected_.emplace(end, ended);
  }
}

std::optional<SentRows::Span> SentRows::find(const std::vector<bool>& readers) const {
  for (const auto& [begun, count] : waiting_) {
    const std::uint64_t end = begun + count;
    for (std::uint64_t at = first_missing(begun, end); at < end;) {
      const std::uint64_t until = reach(at, end);
      if (of_those(at, readers)) {
        // What is expected behind it comes with it.
        const auto more = span_at(expected_, at);
        const std::uint64_t known = more == expected_.end() ? end : std::max(end, more->second);
        return Span{at, reach(at, known) - at};
      }
      at = first_missing(until, end);
    }
  }
  if (held_ >= settings_.room) return {};
  for (const auto& [begun, end] : expected_) {
    for (std::uint64_t at = first_missing(begun, end); at < end;) {
      const std::uint64_t until = reach(at, end);
      if (of_those(at, readers)) return Span{at, until - at};
      at = first_missing(until, end);
    }
  }
  return {};
}

std::optional<SentRows::Span> SentRows::wanted(const std::vector<bool>& readers, double seconds) {
  if (readers.size() != settings_.readers) throw Error("readers must be told of each");
  std::unique_lock lock(mutex_);
  std::optional<Span> found;
  wanted_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    if (stopped_ || !failure_.empty()) return true;
    found = find(readers);
    return found.has_value();
  });
  if (!found) return {};
  expect_no_more(found->first, found->first + found->count);
  asked_.emplace(found->first, found->first + found->count);
  held_ += found->count;
  return found;
}

void SentRows::expect(std::uint64_t first, std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t end = std::min(end_of_all(), first + std::min(count, ~first));
  if (first >= end) return;
  expect_no_more(first, end);
  expected_.emplace(first, end);
  wanted_.notify_all();
}

void SentRows::forget() {
  const std::lock_guard lock(mutex_);
  expected_.clear();
  asked_.clear();
  pieces_.clear();
  held_ = 0;
  wanted_.notify_all();
}

void SentRows::give(const Span& span, RowBlock rows) {
  const std::lock_guard lock(mutex_);
  const auto asked = asked_.find(span.first);
  if (asked == asked_.end() || asked->second != span.first + span.count) return;
  if (rows.rows() != span.count) throw Error("other rows have come than were asked for");
  asked_.erase(asked);
  pieces_.emplace(span.first, Piece{std::move(rows), span.count});
  there_.notify_all();
  wanted_.notify_all();
}

bool SentRows::lost(const Span& span) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t end = span.first + span.count;
  const bool waits = std::any_of(waiting_.begin(), waiting_.end(), [&](const Span& waiting) {
    return waiting.first < end && span.first < waiting.first + waiting.count;
  });
  const auto asked = asked_.find(span.first);
  if (asked == asked_.end() || asked->second != end) return waits;
  asked_.erase(asked);
  held_ -= span.count;
  expect_no_more(span.first, end);
  expected_.emplace(span.first, end);
  wanted_.notify_all();
  return waits;
}

void SentRows::fail(std::string why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = std::move(why);
  there_.notify_all();
  wanted_.notify_all();
}

void SentRows::know(std::uint64_t rows) {
  const std::lock_guard lock(mutex_);
  if (rows_ != rows && (rows_ != kMost || rows == 0)) {
    throw Error("there are " + std::to_string(rows_) + " rows, and not " + std::to_string(rows));
  }
  rows_ = rows;
}

std::uint64_t SentRows::row(std::uint64_t position) const {
  const std::lock_guard lock(mutex_);
  return position % rows_;
}

bool SentRows::has(std::uint64_t row) {
  const std::lock_guard lock(mutex_);
  return row < end_of_all() && !stopped_;
}

std::optional<std::uint64_t> SentRows::rows(std::uint64_t most, double) {
  const std::lock_guard lock(mutex_);
  return stopped_ ? 0 : std::min(most, end_of_all());
}

std::uint64_t SentRows::pass_rows() const {
  const std::lock_guard lock(mutex_);
  return rows_ == kMost ? 0 : rows_;
}

std::uint64_t SentRows::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

bool SentRows::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

std::size_t SentRows::take(std::uint64_t first, std::size_t count, RowBlock& to, double& waited) {
  const auto begun = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const std::uint64_t all = end_of_all();
  if (first >= all) return 0;
  const std::uint64_t end = std::min<std::uint64_t>(all, first + count);
  const auto come = [&] {
    for (std::uint64_t at = first; at < end;) {
      const auto piece = span_at(pieces_, at);
      if (piece == pieces_.end() || piece->first + piece->second.rows.rows() <= at) return false;
      at = piece->first + piece->second.rows.rows();
    }
    return true;
  };
  if (!come()) {
    waiting_.push_back({first, end - first});
    wanted_.notify_all();
    there_.wait(lock, [&] { return stopped_ || !failure_.empty() || come(); });
    const auto own = std::find_if(waiting_.begin(), waiting_.end(), [&](const Span& span) {
      return span.first == first && span.count == end - first;
    });
    waiting_.erase(own);
    waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (!come()) {
      if (!failure_.empty()) throw Error(failure_);
      return 0;
    }
  }
  expect_no_more(first, end);
  for (std::uint64_t at = first; at < end;) {
    const auto piece = std::prev(pieces_.upper_bound(at));
    const std::uint64_t has = piece->second.rows.rows(), from = at - piece->first;
    const std::uint64_t until = std::min(has, from + (end - at));
    to.append(piece->second.rows, from, until);
    at += until - from;
    piece->second.left -= std::min(piece->second.left, until - from);
    if (piece->second.left == 0) {
      held_ -= has;
      pieces_.erase(piece);
    }
  }
  wanted_.notify_all();
  return end - first;
}

void SentRows::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  there_.notify_all();
  wanted_.notify_all();
}

}  // namespace leashed
