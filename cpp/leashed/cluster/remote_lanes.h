// What threads of RemoteRows (cluster/remote_rows.h) have with each server: what is under way, and
// what became of what was.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/clock.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/remote_batch.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_messages.h"
#include "leashed/net/conversation.h"
#include "leashed/row_store/combine_batch.h"

namespace leashed {

// What is to be said to a server, and answered.
struct RemoteRows::Operation {
  enum class Kind : std::uint8_t { look, read, again, push, drop };
  Kind kind;
  RemoteBatch* batch;  // null: of a drop
  std::uint64_t ticket;
  std::uint64_t number = 0;  // of a push
  bool said = false;         // over the connection that there is
};

struct RemoteRows::Lane {
  enum class State : std::uint8_t { away, hello, open } state = State::away;
  std::deque<Operation> operations;  // in their order, which are not over
  RowHello hello{};
  RowWelcome welcome{};
  Settled settled{};
  RowDrop drop{};
  std::uint64_t boot = 0;     // of the server, as it was last
  std::uint64_t applied = 0;  // the last push that it has said to be
  double heard = 0;           // when; or when it was asked something first
  std::string why = "it has not been reached";
  std::vector<std::pair<std::uint64_t, std::uint64_t>> lost;      // pushes: after one, to another
  std::vector<std::pair<std::uint64_t, std::uint64_t>> left_out;  // likewise: that rows have not

  void leave_out(std::uint64_t push) {
    if (!left_out.empty() && left_out.back().second + 1 == push) {
      left_out.back().second = push;
    } else {
      left_out.emplace_back(push - 1, push);
    }
  }

  // Calls f(begin, end) for those of the pushes after one, to another, that are left out.
  template <class F>
  void each_left_out(std::uint64_t after, std::uint64_t to, const F& f) const {
    for (std::size_t i = left_out.size(); i-- > 0 && left_out[i].second > after;) {
      const std::uint64_t begin = std::max(after, left_out[i].first);
      if (const std::uint64_t end = std::min(to, left_out[i].second); begin < end) f(begin, end);
    }
  }

  // Pushes after one, to another, are lost; of those that were not before calls f(after, to).
  template <class F>
  void lose(std::uint64_t after, std::uint64_t to, const F& f) {
    std::uint64_t begin = after, end = to;
    while (!lost.empty() && lost.back().second > after) {
      const auto before = lost.back();
      lost.pop_back();
      f(before.second, end);
      end = std::max(before.first, after);
      begin = std::min(begin, before.first);
    }
    f(after, end);
    lost.emplace_back(begin, to);
  }
};

struct alignas(kCacheLine) RemoteRows::Slot {
  Slot(std::size_t servers, std::uint64_t of) : client(of), conversation(servers), lanes(servers) {}

  const std::uint64_t client;
  Conversation conversation;
  std::vector<Lane> lanes;
  Combiner combiner;
  // Of pushes that may be under way, the oldest first, while batches behind them are in hand: as
  // many as are ahead, or fewer.
  std::vector<std::unique_ptr<RemoteBatch>> pushed_before;
  std::uint64_t tickets = 0, pushes = 0;  // so far
  // Of pushes from a number on, the examples of each; of the last ones there is no other after it.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes;
  std::vector<std::uint64_t> held;  // tickets that are neither pushed nor dropped
  double stopped = 0;               // when it has seen that the run is; 0: it has not
  RowPublication publication;       // of what was settled since it was told last
  std::vector<std::size_t> waiting;
  // Relaxed: for whoever looks on.
  std::atomic<bool> left{false};
  // Release by the worker, acquire by who looks on: all of its pushes are applied by then.
  std::atomic<bool> quiet{true};
  std::atomic<std::uint64_t> lookups{0}, reads{0}, rows{0}, examples{0}, least_bytes{0},
      row_bytes{0}, pools{0}, pushed{0}, settled{0}, not_finite{0}, expired{0}, lost{0},
      lost_examples{0}, unsettled{0}, cuts{0}, waited{0}, settling{0};

  // In nanoseconds.
  static void count_since(double begin, std::atomic<std::uint64_t>& counter) {
    counter.fetch_add(static_cast<std::uint64_t>((now() - begin) * 1e9), kRelaxed);
  }
  // A server has told of a push what became of it.
  void settle(Lane& lane, std::uint64_t push, Settling how) {
    settled.fetch_add(1, kRelaxed);
    if (how == Settling::applied) return;
    lane.leave_out(push);
    if (how == Settling::not_finite) not_finite.fetch_add(1, kRelaxed);
    if (how == Settling::expired) expired.fetch_add(1, kRelaxed);
  }
  void note(std::uint64_t push, std::uint64_t examples) {
    if (sizes.empty() || sizes.back().second != examples) sizes.emplace_back(push, examples);
  }
  // Of the pushes after one, to another.
  std::uint64_t examples_of(std::uint64_t after, std::uint64_t to) const {
    std::uint64_t sum = 0;
    for (std::size_t i = sizes.size(); i-- > 0 && to > after;) {
      const auto [from, examples] = sizes[i];
      if (from > to) continue;
      sum += (to - std::max(after, from - 1)) * examples;
      to = from - 1;
    }
    return sum;
  }
};

struct RemoteRows::Wait {
  double seconds;
  double once_stopped;                             // no longer than these once the run is
  const std::function<bool()>* keep_on = nullptr;  // in place of that
};

}  // namespace leashed
