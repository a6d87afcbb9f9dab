// The data list (gba, 4.1): which batches are still to be handed out, who has which, and until
// when. A batch that comes back goes to the front, under a fresh ticket. It is computed anew, so
// its token is then the step at which it is handed out again, where that is larger. A node has one
// lease at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "leashed/policy/server_machine.h"

namespace leashed::modes {

class LeaseList {
 public:
  struct Taken {
    Lease lease;
    std::uint64_t version;  // of the grant
  };
  // Of batches' numbers.
  struct Span {
    std::uint64_t first, last;

    void visit(Archive& archive) { archive(first, last); }
  };

  // examples = 0: endless. Of one that follows (coordinated.h) nothing comes back, since the batch
  // goes to another elsewhere.
  LeaseList(std::uint64_t batch, std::uint64_t examples, bool follows = false)
      : batch_(batch), largest_(batch), end_(examples), follows_(follows) {}

  void set_batch(std::uint64_t batch) {
    batch_ = batch;
    largest_ = std::max(largest_, batch);
  }
  // There are so many examples; or nothing new any more, where so many have been leased.
  void close(std::uint64_t examples) {
    closed_ = examples <= first_;
    if (!closed_) end_ = examples;
  }
  std::uint64_t leased() const { return first_; }  // examples, once or again
  std::uint64_t largest() const { return largest_; }
  bool available() const { return !back_.empty() || !exhausted(); }
  bool spent() const { return out_ == 0 && !available(); }
  std::size_t out() const { return out_; }
  std::uint64_t next_number() const { return next_; }
  bool has(Node node) const { return node < held_.size() && held_[node] != kNone; }
  std::optional<Taken> of(Node node) const {
    if (!has(node)) return std::nullopt;
    const Entry& entry = entries_[held_[node]];
    return Taken{entry.lease, entry.version};
  }

  // The next one, to be back by `until`; `token` is that of a new one, `step` the least of one that
  // has come back.
  const Lease& take(Node node, Time until, std::uint64_t version, std::uint64_t token,
                    std::uint64_t step) {
    Lease lease;
    if (!back_.empty()) {
      lease = back_.back();
      lease.token = std::max(lease.token, step);
      back_.pop_back();
    } else {
      const std::uint64_t count = end_ == 0 ? batch_ : std::min(batch_, end_ - first_);
      lease = {++tickets_, next_++, first_, count, token};
      first_ += count;
    }
    return put({lease, until, version, node});
  }

  // Of a push; none where its node does not hold that ticket, or no longer, or where the batch that
  // it brings has been here before.
  std::optional<Taken> finish(const Event& push) {
    const Node node = push.node;
    if (!has(node) || entries_[held_[node]].lease.ticket != push.ticket) return std::nullopt;
    const Entry& entry = entries_[held_[node]];
    Taken taken{entry.lease, entry.version};
    remove(held_[node]);
    if (!follows_) return taken;
    if (!is_new(push.lease.number)) return std::nullopt;
    taken.lease = push.lease;
    taken.lease.ticket = push.ticket;
    return taken;
  }

  void give_back(Node node) {
    if (has(node)) recall(held_[node]);
    put_back();
  }

  // Who did not come back in time gives back what it has; then expired(node) for each. All have the
  // same term, so that the oldest are the first.
  template <class F>
  void expire(Time now, F&& expired) {
    expired_.clear();
    while (oldest_ != kNone && entries_[oldest_].until.ns <= now.ns) {
      expired_.push_back(entries_[oldest_].node);
      recall(oldest_);
    }
    put_back();
    for (const Node node : expired_) expired(node);
  }

  // Those that are out, and those that have come back.
  std::vector<Lease> unfinished() const {
    std::vector<Lease> all = back_;
    for (std::uint32_t i = oldest_; i != kNone; i = entries_[i].newer) {
      all.push_back(entries_[i].lease);
    }
    return all;
  }

  bool follows() const { return follows_; }
  // Of one that follows the numbers of batches that it has had, ascending and apart.
  const std::vector<Span>& had() const { return had_; }
  // Of one that has led: it follows from now on, and has had what it has leased and what is not
  // unfinished. Nobody has a lease any more.
  void follow() {
    std::vector<std::uint64_t> left;
    for (const Lease& lease : unfinished()) left.push_back(lease.number);
    std::ranges::sort(left);
    had_.clear();
    std::uint64_t from = 0;
    for (const std::uint64_t number : left) {
      if (number > from) had_.push_back({from, number - 1});
      from = number + 1;
    }
    if (next_ > from) had_.push_back({from, next_ - 1});
    while (oldest_ != kNone) remove(oldest_);
    back_.clear();
    follows_ = true;
    closed_ = false;
    end_ = 0;
  }

  // But how many examples there are, which the data tell. Of nodes below `nodes`.
  void visit(Archive& archive, std::size_t nodes) {
    const std::uint64_t largest = largest_;
    archive(batch_, largest_, tickets_, next_, first_, back_);
    if (follows_) archive(had_);
    std::vector<Entry> out;
    for (std::uint32_t i = oldest_; i != kNone; i = entries_[i].newer) out.push_back(entries_[i]);
    archive(out);
    if (!archive.reads()) return;
    archive.require(largest_ == largest && batch_ > 0 && batch_ <= largest_ &&
                    first_ <= std::numeric_limits<std::uint64_t>::max() / 2);
    for (std::size_t i = 0; i < had_.size(); ++i) {
      archive.require(had_[i].first <= had_[i].last &&
                      (i == 0 || had_[i - 1].last + 1 < had_[i].first));
    }
    entries_.clear();
    free_.clear();
    held_.clear();
    oldest_ = newest_ = kNone;
    out_ = 0;
    for (const Entry& entry : out) {
      archive.require(entry.node < nodes && !has(entry.node));
      put(entry);
    }
    for (const Lease& lease : unfinished()) {
      archive.require(lease.count > 0 && lease.count <= largest_ && lease.count <= first_ &&
                      lease.first <= first_ - lease.count);
    }
  }

  // What has come back and waits is new to an algorithm that begins now at step `token`: its tokens
  // are those of the first batches from there on. The number to count new batches from.
  std::uint64_t renew(std::uint64_t token, std::uint64_t repeats) {
    for (std::size_t i = 0; i < back_.size(); ++i) {
      back_[back_.size() - 1 - i].token = token + i / repeats;
    }
    return next_ - back_.size();
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  struct Entry {
    Lease lease;
    Time until;
    std::uint64_t version;
    Node node;
    std::uint32_t older = kNone, newer = kNone;

    void visit(Archive& archive) { archive(lease, until.ns, version, node); }
  };

  bool exhausted() const { return closed_ || (end_ != 0 && first_ >= end_); }

  const Lease& put(Entry entry) {
    const std::uint32_t i = place();
    if (entry.node >= held_.size()) held_.resize(std::size_t{entry.node} + 1, kNone);
    entry.older = newest_;
    entry.newer = kNone;
    held_[entry.node] = i;
    (newest_ == kNone ? oldest_ : entries_[newest_].newer) = i;
    newest_ = i;
    ++out_;
    entries_[i] = entry;
    return entries_[i].lease;
  }

  std::uint32_t place() {
    if (free_.empty()) {
      entries_.emplace_back();
      return static_cast<std::uint32_t>(entries_.size() - 1);
    }
    const std::uint32_t i = free_.back();
    free_.pop_back();
    return i;
  }

  void remove(std::uint32_t i) {
    const Entry& e = entries_[i];
    held_[e.node] = kNone;
    (e.older == kNone ? oldest_ : entries_[e.older].newer) = e.newer;
    (e.newer == kNone ? newest_ : entries_[e.newer].older) = e.older;
    free_.push_back(i);
    --out_;
  }

  void recall(std::uint32_t i) {
    recalled_.push_back(entries_[i].lease);
    remove(i);
  }

  // What a push says is no measure of memory: there are no more spans than tickets were granted.
  bool is_new(std::uint64_t number) {
    const auto after = std::upper_bound(had_.begin(), had_.end(), number,
                                        [](std::uint64_t n, const Span& s) { return n < s.first; });
    const auto before = after == had_.begin() ? had_.end() : std::prev(after);
    if (before != had_.end() && number <= before->last) return false;
    const bool follows = before != had_.end() && before->last + 1 == number;
    const bool leads = after != had_.end() && number + 1 == after->first;
    if (follows && leads) {
      before->last = after->last;
      had_.erase(after);
    } else if (follows) {
      before->last = number;
    } else if (leads) {
      after->first = number;
    } else {
      had_.insert(after, {number, number});
    }
    return true;
  }

  void put_back() {
    if (follows_) recalled_.clear();
    std::sort(recalled_.begin(), recalled_.end(),
              [](const Lease& a, const Lease& b) { return a.number < b.number; });
    for (Lease& lease : recalled_) lease.ticket = ++tickets_;
    back_.insert(back_.end(), recalled_.rbegin(), recalled_.rend());
    recalled_.clear();
  }

  std::uint64_t batch_, largest_, end_;
  bool follows_;
  std::uint64_t tickets_ = 0, next_ = 0, first_ = 0;
  bool closed_ = false;
  std::size_t out_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_, held_;  // held_[node]: its entry
  std::uint32_t oldest_ = kNone, newest_ = kNone;
  std::vector<Lease> back_, recalled_;  // back_: the next one last
  std::vector<Node> expired_;
  std::vector<Span> had_;  // of one that follows: numbers of batches, ascending and apart
};

}  // namespace leashed::modes
