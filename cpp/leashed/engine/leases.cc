#include "leashed/engine/leases.h"

#include <algorithm>
#include <chrono>

namespace leashed {

void Leases::give(const Lease& lease) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;  // some may have been claimed from beyond
    spans_.push_back({lease, given_});
    given_ += lease.count;
  }
  more_.notify_all();
}

void Leases::revoke() {
  const std::lock_guard lock(mutex_);
  given_ = std::min(given_, claimed_);
  while (!spans_.empty() && spans_.back().begin >= given_) spans_.pop_back();
  if (!spans_.empty()) {
    Span& last = spans_.back();
    last.lease.count = std::min(last.lease.count, given_ - last.begin);
    last.prefix = std::min(last.prefix, last.lease.count);
    last.beyond.resize(std::min<std::uint64_t>(last.beyond.size(), last.lease.count - last.prefix));
  }
  for (Span& span : spans_) {
    if (span.revoked) continue;
    span.revoked = true;
    const std::uint64_t told = span.told == ~0ull ? 0 : span.told;
    astray_ += span.prefix - told;
    astray_ += static_cast<std::uint64_t>(std::count(span.beyond.begin(), span.beyond.end(), true));
  }
}

std::uint64_t Leases::astray() const {
  const std::lock_guard lock(mutex_);
  return astray_;
}

void Leases::end(std::uint64_t beyond) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    beyond_ = beyond;
  }
  more_.notify_all();
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Leases::used() {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  all.reserve(spans_.size());  // what is marked as told is told
  for (Span& span : spans_) {
    if (span.prefix == span.told) continue;
    span.told = span.prefix;
    if (!span.revoked) all.emplace_back(span.lease.ticket, span.prefix);
  }
  // (From the front alone: find() goes by the order.)
  while (!spans_.empty() && spans_.front().told == spans_.front().lease.count) spans_.pop_front();
  return all;
}

std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> Leases::apart() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> all;
  for (const Span& span : spans_) {
    if (span.revoked) continue;
    for (auto from = span.beyond.begin(); from != span.beyond.end();) {
      from = std::find(from, span.beyond.end(), true);
      const auto to = std::find(from, span.beyond.end(), false);
      const auto first = span.prefix + static_cast<std::uint64_t>(from - span.beyond.begin());
      if (from != to) {
        all.emplace_back(span.lease.ticket, first, static_cast<std::uint64_t>(to - from));
      }
      from = to;
    }
  }
  return all;
}

std::uint64_t Leases::left() const {
  const std::lock_guard lock(mutex_);
  return given_ - std::min(claimed_, given_);
}

const Leases::Span* Leases::find(std::uint64_t j) const {
  const auto after = std::upper_bound(spans_.begin(), spans_.end(), j,
                                      [](std::uint64_t n, const Span& s) { return n < s.begin; });
  return &*std::prev(after);
}

std::uint64_t Leases::number(std::uint64_t j) const {
  const Span& span = *find(j);
  return span.lease.first + (j - span.begin);
}

Leases::Claim Leases::wait(std::uint64_t j, double seconds, std::unique_lock<std::mutex>& lock) {
  const auto known = [this, j] { return j < given_ || ended_; };
  if (!known() &&
      (seconds <= 0 || !more_.wait_for(lock, std::chrono::duration<double>(seconds), known))) {
    return Claim::waiting;
  }
  return j < given_ ? Claim::given : Claim::none;
}

Leases::Claim Leases::claim(std::uint64_t j, double seconds, std::uint64_t& k) {
  std::unique_lock lock(mutex_);
  const Claim claim = wait(j, seconds, lock);
  if (claim != Claim::given) return claim;
  claimed_ = std::max(claimed_, j + 1);
  k = number(j);
  return claim;
}

Leases::Claim Leases::claim_beyond(std::uint64_t j, double seconds, std::uint64_t& k) {
  const Claim claim = this->claim(j, seconds, k);
  if (claim != Claim::none) return claim;
  const std::lock_guard lock(mutex_);
  k = beyond_ + (j - given_);
  return Claim::given;
}

Leases::Claim Leases::take(double seconds, std::uint64_t& j, std::uint64_t& k) {
  const auto known = [this] { return claimed_ < given_ || ended_; };
  std::unique_lock lock(mutex_);
  if (!known() &&
      (seconds <= 0 || !more_.wait_for(lock, std::chrono::duration<double>(seconds), known))) {
    return Claim::waiting;
  }
  if (claimed_ >= given_) return Claim::none;
  j = claimed_++;
  k = number(j);
  return Claim::given;
}

void Leases::use(std::uint64_t j) {
  const std::lock_guard lock(mutex_);
  if (j >= given_) return;  // from beyond
  Span& span = const_cast<Span&>(*find(j));
  astray_ += span.revoked;
  const std::uint64_t ahead = j - span.begin - span.prefix;
  if (ahead >= span.beyond.size()) span.beyond.resize(ahead + 1);
  span.beyond[ahead] = true;
  while (!span.beyond.empty() && span.beyond.front()) {
    span.beyond.pop_front();
    ++span.prefix;
  }
}

}  // namespace leashed
