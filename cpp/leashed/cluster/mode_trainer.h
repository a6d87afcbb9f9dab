// A trainer of a mode whose policy server lies elsewhere: its workers are threads, each a lane of a
// RemoteServer, and whoever evaluates looks at the server's parameters over a connection more.
//
// One that looks ahead has more lanes than compute at once: while one computes another has its
// lease granted, its rows sent, or its gradient on the way. To the server each is a worker.
//
// It is there before its training begins and after that has ended, so that whoever makes
// connections need not know when that is.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/asked_rows.h"
#include "leashed/cluster/mode_looks.h"
#include "leashed/cluster/remote_server.h"
#include "leashed/discipline/observed.h"
#include "leashed/modes/policy_threads.h"

namespace leashed {

class ModeTrainer final : public RemoteMode, private Observed {
 public:
  struct Settings {
    // As RemoteServer has them; of the lane behind the last it is who looks on.
    std::uint64_t run, terms, client, life;
    double patience = 300;    // seconds
    ModeShards shards{};      // empty: one server has all
    bool reduces = false;     // as of PolicyService::Run
    std::size_t at_once = 0;  // lanes that compute; 0: all
  };
  // tables: whose rows the servers have, those that the source will read, in its order; placement:
  // where they are, of several servers.
  ModeTrainer(std::size_t dimension, std::size_t lanes, const Settings& settings,
              std::vector<ServedTable> tables = {},
              std::optional<RowPlacement> placement = std::nullopt);
  ~ModeTrainer() override;

  // For whoever makes connections, from any thread: the servers' numbers are from 0, and of slots
  // those of the lanes and of who looks on, which wants one first.
  std::size_t slots() const { return lanes_ + 1; }
  bool missing(std::size_t slot, std::size_t server) const;
  // As RemoteServer::adopt; true, since a server that does not answer is found later.
  bool adopt(std::size_t slot, std::size_t server, int socket, bool checked, Transport wish,
             double patience);
  // From any thread, as of RemoteServer; of none before its training.
  std::vector<std::pair<std::size_t, std::uint64_t>> wanted() const;
  void adopt_sum(std::size_t lane, std::uint64_t client, int socket, bool checked, Transport wish,
                 Role role);
  // From any thread: the run is over for this trainer, whatever the server says or does not say. A
  // training is interrupted, and ends with the parameters that were looked at last.
  void end();
  // From any thread: whether the server has said that all is trained.
  bool ended() const { return ended_.load(std::memory_order_relaxed); }

  // Once. What is trained on is what the server leases; counts are the server's, of the moment of
  // the parameters that come out, which are those that are evaluated last; and by worker this
  // trainer's own.
  ModeTrainResult train(const GradientSource& source, const DatasetView& data,
                        const DatasetView* validation, const modes::WorkerRule& rule,
                        const DisciplineContext& context, const ModeTrainOptions& options,
                        const TrainCallbacks& callbacks) override;

  using Counters = RemoteServer::Counters;
  Counters counters() const;

 private:
  struct Training;

  void with_snapshot(const std::function<void(const float* theta, std::uint64_t t)>& f) override;
  std::size_t live_vectors() const override { return lanes_ + 2; }
  // Whether the server's parameters have come; false: the run is over, or whoever trains is told to
  // end, and nothing comes.
  bool look();
  // The same of rows: until they have come, or are wanted no more.
  void look(AskedRows& rows, const std::function<bool()>& keep_on);
  // Until take() has what was asked.
  bool await(const std::function<bool()>& take, const std::function<bool()>& keep_on);
  // Whether whoever trains is told to end, as by Ctrl-C, which is kept for the next who asks.
  bool told_to_end();

  const std::size_t dimension_, lanes_;
  const Settings settings_;
  const ModeShards shards_;

  ServedTables tables_;

  ModeLooks looks_;  // of the one that looks on
  // Of the training: what asks whether it is told to end, on its thread; whether it was, and
  // whether here, so that nobody else has heard it; whether its workers have ended; whether what
  // they came to has been looked at.
  std::function<bool()> interrupted_;
  bool told_ = false, heard_ = false, workers_ended_ = false, settled_ = false;

  mutable std::mutex mutex_;
  std::shared_ptr<RemoteServer> remote_;  // under the lock; null: nothing has been trained
  StopFlag* stop_ = nullptr;              // under the lock; of what is trained now
  // Relaxed, both: they hand nothing over.
  std::atomic<bool> over_{false}, ended_{false};
};

}  // namespace leashed
