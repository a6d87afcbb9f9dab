// A training by a mode (policy/server_machine.h) on threads of this process: each worker is one,
// and the server is no thread but a lock: who pushes carries out what the mode asks for, and leaves
// for the others what is granted to them. Those who wait for a grant meanwhile help with what comes
// in parts (base/joint_work.h), the mean of many gradients and the update.
//
// A worker tells the server that it pushes and pulls, which is one turn of the lock, and then waits
// for its flags (base/flags.h): a grant, the end, or that the run is stopped, whoever stops it and
// why. The grant is written under the lock before its flag is raised. Gradients are computed
// outside the lock, on a version that is pinned, or on the worker's own model; own models that
// others look at (of peers, and of an ensemble) are changed under the lock, and peers compute on
// copies of theirs. Of a stream it is known before the lock is taken that all is there that may be
// granted under it, or where the data end. The rows of tables that a batch reads are found and
// copied with its grant, and so under the lock as their updates are; gradients are of the copies.
// Time is the monotonic clock's since the workers were started, read under the lock, so that it
// does not go back from one event to the next; a run that goes on from a checkpoint goes on from
// the time of that.
//
// A checkpoint is taken while all workers wait (engine/pause.h), who has a grant before it begins
// to compute, or when they have ended. Leases that are out then stay with whom they were granted
// to, and so does what he has made of them on a model of his own. A gradient on what was pulled is
// computed anew, on what is held then.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "leashed/data/stream_batches.h"
#include "leashed/engine/callbacks.h"
#include "leashed/engine/result.h"
#include "leashed/server/parameter_server.h"

namespace leashed {

// Is told what the server hears, in that order, under its lock. From it, the data and the
// parameters at the beginning all that the run did can be done again.
class ModeListener {
 public:
  virtual ~ModeListener() = default;

  virtual void heard(const modes::Event& event, Time at) = 0;
  // A worker has made a step on its own model, of a mode where others look at that or change it.
  virtual void stepped(modes::Node node) = 0;
};

class ProgressMetrics;
class RemoteMode;
class StepObserver;
class Table;

struct ModeTrainOptions {
  std::size_t workers;
  std::size_t batch_size;
  std::uint64_t seed;
  StopRules until;            // but batches, which are the mode's examples
  double evaluate_every = 0;  // as of TrainOptions
  // What the mode is told, and when, in seconds.
  std::vector<std::pair<double, std::uint32_t>> commands = {};
  ModeListener* listener = nullptr;
  ProgressMetrics* metrics = nullptr;  // as of TrainOptions
  std::vector<StepObserver*> observers = {};
  // Those that the source reads, in its order.
  std::vector<std::shared_ptr<Table>> tables = {};
  // As of TrainOptions. Its examples end the run where they end: the mode is told so.
  const StreamedData* stream = nullptr;
  bool terms = false;  // whether a lease may go to another
  // Checkpoints are taken so many seconds apart, and by all workers waiting where the updates come
  // to a multiple of that number; 0: by none.
  double checkpoint_every = std::numeric_limits<double>::infinity();
  std::uint64_t pause_every = 0;
  bool judges = false;  // as of TrainOptions
  // To go on from; where it is of no mode, this one begins with its parameters.
  const Checkpoint* from = nullptr;
  RemoteMode* elsewhere = nullptr;  // trains in place of threads with a server of their own
};

struct ModeTrainResult {
  TrainResult training;
  ModeCounts counts;
};

// Whose server lies elsewhere (cluster/mode_trainer.h). Takes no checkpoints, and of streams those
// whose rows may be asked for again; has no use for tables of this process: its server has their
// rows.
class RemoteMode {
 public:
  virtual ~RemoteMode() = default;
  // As train_mode, with the workers' rule of the server's mode.
  virtual ModeTrainResult train(const GradientSource& source, const DatasetView& data,
                                const DatasetView* validation, const modes::WorkerRule& rule,
                                const DisciplineContext& context, const ModeTrainOptions& options,
                                const TrainCallbacks& callbacks) = 0;
};

// `context.workers` are as many as the options', with a reader at least. Throws Error where the
// source reads other tables than the options have, or reads any and workers send models, or the
// checkpoint is damaged.
ModeTrainResult train_mode(const GradientSource& source, const DatasetView& data,
                           const DatasetView* validation, const modes::ServerPolicy& machine,
                           const DisciplineContext& context, const ModeTrainOptions& options,
                           const TrainCallbacks& callbacks);

}  // namespace leashed
