// Rows that embedding servers hold (cluster/row_messages.h), as workers see those of this process
// (row_store/row_store.h). Each thread has a connection of its own with each server: it combines
// the ids of its batch, asks each server for those that it has, all at once, and sends each the
// gradients of its rows from where they were added up.
//
// With a look-ahead a batch's rows are asked for when it is prefetched, so that they come while the
// one before it is computed, or so many before it; they are then without the updates of these. With
// 0 they are asked for when it is pulled, and one worker has the bits of rows in its own process.
//
// Where a feature's ids are many an example, and few servers have them, pools of their rows are
// fewer bytes than the rows (cluster/pool_choice.h): those servers make, and the model reads them
// as one row an example.
//
// Nobody waits to send without reading. A connection that is cut is waited for, and goes on where
// it was: what was under way is said again, and each push is applied once. Of a server that was
// started again the account is what it tells: pushes that it had said to be applied and has not are
// lost, and counted; rows in hand are looked up once more, so that their push finds them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/cluster/pool_choice.h"
#include "leashed/cluster/row_messages.h"
#include "leashed/net/conversation.h"
#include "leashed/row_store/combine_batch.h"
#include "leashed/row_store/row_store.h"

namespace leashed {

// What RemoteRows is made for.
struct RemotePlan {
  std::vector<ServedTable> tables;
  std::vector<std::size_t> features_of_tables;  // of each feature its table
  RowPlacement placement;
  std::size_t servers;
  std::size_t workers, readers;
  std::uint64_t client;  // the first thread's; the others' follow
  std::uint64_t life;    // of this process, larger than those of processes before it
  double timeout;        // seconds of a server's silence after which its connection is given up
  double patience;       // seconds for which a server is waited for in all
  std::size_t look_ahead = 1;  // batches: at most kMostAhead
  // Called in place of waiting, by whoever has nothing to do but that; null: it waits.
  std::function<void()> idle = nullptr;
  PoolChoice::Poolings poolings = {};  // of features that may be pooled; empty: of none
  PooledAt pooling = PooledAt::automatic;
  // Worker w looks up and updates the w-th of the tables alone, modulo their number, and its pushes
  // are steps of that one alone. There is a feature for each table, in their order. Connections are
  // made once a worker has asked for something.
  bool apart = false;
};

// A server that is waited for has not answered.
class RowsAway : public Error {
 public:
  using Error::Error;
};

class RemoteRows final : public RowStore {
 public:
  // Throws Error where the plan does not fit together.
  explicit RemoteRows(RemotePlan plan);
  ~RemoteRows() override;

  // Threads that have connections with the servers: workers, then readers.
  std::size_t slots() const { return plan_.workers + plan_.readers; }
  std::size_t workers() const { return plan_.workers; }
  std::size_t tables() const { return plan_.tables.size(); }
  std::size_t dim(std::size_t table) const { return plan_.tables.at(table).dim; }
  std::size_t look_ahead() const { return plan_.look_ahead; }
  // Takes a connection over, of any thread; where it throws, the socket stays the caller's. False:
  // nobody answers within so many seconds, and it is closed. Over shared memory, too, waits for the
  // other side.
  bool adopt(std::size_t slot, std::size_t server, int socket, bool checked, Transport wish,
             double patience);
  // Whether the slot needs a connection with the server.
  bool missing(std::size_t slot, std::size_t server) const;

  std::unique_ptr<BatchRows> make_batch() const override;
  std::size_t ahead() const override { return std::max<std::size_t>(plan_.look_ahead, 1); }
  void follow(const std::atomic<bool>& stopped) override;
  bool waits() const override { return true; }
  // A server that is not reached yet has told that it will be: from now on it is waited for as long
  // as if that had begun. Of any thread.
  void expect();
  // Nobody has these rows any more: who trains by them, or evaluates, is to end. Of any thread.
  void forsake();
  bool forsaken() const override { return forsaken_.load(std::memory_order_relaxed); }
  void prefetch(std::size_t worker, const BatchView& batch, BatchRows& rows) override;
  void pull(std::size_t worker, BatchView& batch, BatchRows& rows) override;
  RowPublication push(std::size_t worker, BatchRows& rows, const RowStep& step) override;
  void settle(std::size_t worker) override;
  // Whether each worker has waited for a batch since its last step for so long that all servers
  // have told what became of its pushes. Of any thread.
  bool settled() const;
  void drop(std::size_t worker, BatchRows& rows) override;
  void reach(std::uint64_t /*updates*/) override {}  // servers count pushes
  RowPublication leave(std::size_t worker) override;
  std::size_t readers() const override { return plan_.readers; }
  void read(std::size_t reader, BatchView& batch, BatchRows& rows,
            const std::function<bool()>& keep_on = nullptr) override;

  // Where tables are apart: as read(), in order with what the worker has pushed. False: nobody has
  // these rows any more.
  bool look(std::size_t worker, BatchView& batch, BatchRows& rows);
  // Waits until whatever the worker has pushed is applied. False: nobody has these rows any more.
  bool finish(std::size_t worker);
  // What has become of its pushes since it was told last.
  RowPublication told(std::size_t worker);
  // Asked now and then while the worker waits, in its thread: throws what is to end that. Null:
  // nothing is.
  void watch(std::size_t worker, const std::function<bool()>* watch);

  // For any thread.
  struct Counters {
    std::uint64_t lookups = 0;   // of batches that train
    std::uint64_t reads = 0;     // of those that do not
    std::uint64_t rows = 0;      // looked up for batches that train
    std::uint64_t examples = 0;  // of these batches
    // That ids, rows and gradients of all of these take; of what is pooled places, pools and
    // theirs.
    std::uint64_t least_bytes = 0;
    std::uint64_t row_bytes = 0;      // that they would take, were nothing pooled
    std::uint64_t pools = 0;          // looked up for batches that train
    std::uint64_t pushes = 0;         // of batches; each goes to all servers
    std::uint64_t settled = 0;        // parts of these that a server has said to be applied
    std::uint64_t not_finite = 0;     // and left out: gradients that are not
    std::uint64_t expired = 0;        // and left out: rows that were held too long
    std::uint64_t lost = 0;           // and were lost with a server that was started again
    std::uint64_t lost_examples = 0;  // of the batches of these parts
    std::uint64_t unsettled = 0;      // parts of which nobody has told, at a worker's end
    std::uint64_t cuts = 0;           // connections that ended before the worker had
    double seconds = 0;               // that workers have waited for rows
    double settling = 0;              // seconds, for what was pushed to be applied
    Traffic traffic;
    std::optional<Traffic> kernel;  // as WireCount has it
  };
  Counters counters() const;
  // By feature, whether servers pool it; nothing: that is not decided yet. For any thread.
  std::optional<std::vector<bool>> pooled() const;

 private:
  struct RemoteBatch;
  struct Held;
  struct Operation;
  struct Lane;
  struct Slot;
  struct Wait;

  // By number: workers, then readers.
  std::unique_ptr<Slot> make_slot(std::size_t number) const;
  bool read(Slot& slot, BatchView& batch, RemoteBatch& rows, const Wait& how);
  void combine(Slot& slot, const BatchView& batch, RemoteBatch& rows, bool trains);
  void begin_pools(const PoolChoice::Poolings& poolings, RemoteBatch& rows) const;
  // Where the ids are: of each table how many each server has.
  void share_out(RemoteBatch& rows) const;
  // What each server is asked.
  void ask(RemoteBatch& rows) const;
  void find_places(RemoteBatch& rows) const;
  void find_pools(const BatchView& batch, RemoteBatch& rows) const;
  // What is to be decided about pools, from one more batch.
  void weigh(const BatchView& batch, const RemoteBatch& rows);
  // Where what comes will be, and what is sent.
  void lay_out(RemoteBatch& rows) const;
  // All rows are there.
  static void join_pools(RemoteBatch& rows);
  // Whether what a server has answered can be.
  static bool makes_sense(const RemoteBatch& rows, std::size_t server);
  void check_size(const RemoteBatch& rows) const;
  void look_up(Slot& slot, RemoteBatch& rows, bool trains);
  // What has not come, and nobody will use.
  static void fill_in(RemoteBatch& rows);
  static void show(RemoteBatch& rows, BatchView& batch);
  // Does what can be done without waiting; whether anything was.
  bool step(Slot& slot);
  bool step(Slot& slot, std::size_t server);
  void say(Slot& slot, std::size_t server, Operation& operation);
  bool hear(Slot& slot, std::size_t server);
  void welcomed(Slot& slot, std::size_t server);
  void cut(Slot& slot, std::size_t server, const std::string& why);
  // Steps until done(). False: whoever waits is not to, any more, and it is not done.
  // Throws Error where it is not within its seconds.
  bool wait(Slot& slot, const Wait& how, const std::function<bool()>& done);
  [[noreturn]] void give_up(const Slot& slot, double seconds) const;
  void let_go(Slot& slot, std::uint64_t ticket);
  // Those operations are over, whatever comes of them.
  template <class Which>
  void abandon(Slot& slot, std::size_t server, const Which& which);
  void forget(Slot& slot, const RemoteBatch& rows, const std::string& why);
  std::unique_ptr<RemoteBatch> make() const;
  // Memory that nobody needs, for the next batch. Meanwhile as many pushes may be under way as
  // batches are ahead: where an answer takes as long as these, none waits for it.
  RemoteBatch& fresh(Slot& slot, Held& held);
  // Until nobody needs the batch's memory.
  void finish(Slot& slot, const RemoteBatch& rows);
  // Whether the slot has to do with a server.
  bool serves(const Slot& slot, std::size_t server) const;

  const RemotePlan plan_;
  std::vector<std::vector<std::size_t>> tables_of_;  // by server: those of which it has rows
  std::vector<std::optional<std::size_t>> whole_;    // by table: the server that has all of it
  std::vector<std::uint64_t> digests_;               // by server
  std::vector<float> zeros_;                         // what an example without ids has for a pool
  PoolChoice choice_;
  std::vector<std::unique_ptr<Slot>> slots_;
  // Whether whoever waits is to give up; given before any thread of the run. Relaxed: hands nothing
  // over.
  const std::atomic<bool>* stopped_ = nullptr;
  // When a server was expected last. Relaxed: hands nothing over.
  std::atomic<double> expected_{0};
  // Looked at by the run's monitor, which stops it, and where tables are apart by who waits; and
  // since when. Relaxed: hand nothing over.
  std::atomic<bool> forsaken_{false};
  std::atomic<double> forsaken_at_{0};
};

}  // namespace leashed
