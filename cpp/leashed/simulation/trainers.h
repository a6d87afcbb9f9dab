// Trainers in virtual time: each has a replica of theta and workers of its own, and all are kept in
// sync by the values that keep those of a cluster so (policy/synchroniser.h), over links of a given
// bandwidth. What cluster/background.h and cluster/foreground.h do on threads and over sockets is
// done here event by event.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "leashed/cluster/pace.h"
#include "leashed/net/codec.h"
#include "leashed/policy/synchroniser.h"
#include "leashed/simulation/row_servers.h"

namespace leashed {

class Discipline;

struct TrainersPlan {
  std::size_t count = 1;
  std::optional<Synchroniser> machine = {};  // none: replicas stay apart
  Pace pace = {};
  std::size_t servers = 1;
  std::size_t parts = 1;  // a round takes one of so many parts of the vector in turn
  // Bytes a second, each way: of each sync server's link; where trainers reduce, of each trainer's.
  double bandwidth = std::numeric_limits<double>::infinity();
  double latency = 0;  // seconds, each way
  Codec codec = Codec::none;
  bool mean = false;  // the output model: the mean of the replicas; else the first
  RowServersPlan rows = {};
};

// Of each trainer, and the bytes of all.
struct TrainerCounts {
  double drawn = 0;  // the second in which the last batch was begun
  std::vector<std::uint64_t> iterations;
  std::vector<std::uint64_t> rounds;  // done
  std::vector<double> seconds;        // in them
  // Sent and received by the trainers; to and from sync servers with the headers of frames.
  std::uint64_t bytes_out = 0, bytes_in = 0;
  // The same to and from embedding servers, and the seconds for which workers waited for rows.
  std::uint64_t row_bytes_out = 0, row_bytes_in = 0;
  std::vector<double> row_seconds;
};

// What plays a synchronisation.
class SyncStage {
 public:
  virtual ~SyncStage() = default;

  virtual std::int64_t now() const = 0;
  virtual Discipline& replica(std::size_t trainer) = 0;
  // PlayedSync::play is to be called with `what` then.
  virtual void sync_at(std::int64_t ns, std::uint32_t what) = 0;
  // A worker that waited goes on.
  virtual void resume(std::uint32_t worker) = 0;
  // A replica, or what came of several, is not finite.
  virtual void not_finite() = 0;
};

// Workers are numbered trainer by trainer.
class PlayedSync {
 public:
  virtual ~PlayedSync() = default;

  // Shadow threads begin, where there are any.
  virtual void begin() = 0;
  // The worker has had an iteration; false: it waits until SyncStage::resume.
  virtual bool stepped(std::uint32_t worker) = 0;
  // It has its last behind it.
  virtual void left(std::uint32_t worker) = 0;
  virtual void play(std::uint32_t what) = 0;
};

// `initial` is what all replicas begin with; `counts` are kept up.
std::unique_ptr<PlayedSync> make_played_sync(const TrainersPlan& plan, const float* initial,
                                             std::size_t dimension, std::size_t workers,
                                             SyncStage& stage, TrainerCounts& counts);

}  // namespace leashed
