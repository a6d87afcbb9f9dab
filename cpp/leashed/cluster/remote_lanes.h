// What threads of RemoteRows (cluster/remote_rows.h) have with each server: what is under way, and
// what became of what was.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
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
  InRows in_rows;             // that its rows have, as it said then
  double heard = 0;           // when; or when it was asked something first
  std::string why = "it has not been reached";
};

struct alignas(kCacheLine) RemoteRows::Slot {
  Slot(std::size_t servers, std::uint64_t of, std::optional<std::size_t> only)
      : client(of), table(only), conversation(servers), lanes(servers), wanted(!only) {}

  const std::uint64_t client;
  const std::optional<std::size_t> table;  // that it has to do with alone
  Conversation conversation;
  std::vector<Lane> lanes;
  Combiner combiner;
  // Of pushes that may be under way, the oldest first, while batches behind them are in hand: as
  // many as are ahead, or fewer.
  std::vector<std::unique_ptr<RemoteBatch>> pushed_before;
  std::uint64_t tickets = 0, pushes = 0;  // so far
  std::vector<std::uint64_t> held;        // tickets that are neither pushed nor dropped
  double stopped = 0;                     // when it has seen that the run is; 0: it has not
  RowPublication publication;             // of what was settled since it was told last
  std::vector<std::size_t> waiting;
  const std::function<bool()>* watch = nullptr;  // as RemoteRows::watch has it
  // Relaxed: for whoever looks on.
  std::atomic<bool> wanted;  // connections are
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
  void settle(Settling how) {
    settled.fetch_add(1, kRelaxed);
    if (how == Settling::not_finite) not_finite.fetch_add(1, kRelaxed);
    if (how == Settling::expired) expired.fetch_add(1, kRelaxed);
  }
};

struct RemoteRows::Wait {
  double seconds;
  double once_stopped;                             // no longer than these once the run is
  const std::function<bool()>* keep_on = nullptr;  // in place of that
};

}  // namespace leashed
