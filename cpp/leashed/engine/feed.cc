#include "leashed/engine/feed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "leashed/data/run_batches.h"
#include "leashed/discipline/discipline.h"
#include "leashed/engine/training.h"

namespace leashed {
namespace {

// Batch k is at place k.
class Numbers final : public Feed {
 public:
  Numbers(const Places& places, const BatchSource& batches) : Feed(places), batches_(batches) {}

  Given has(std::uint64_t place, std::uint64_t count, double) override {
    return batches_.has(place + count - 1) ? Given::given : Given::none;
  }
  Given fill(Claim& claim, double) override {
    claim.k = claim.place;
    batches_.fill(claim.k, claim.batch);
    return Given::given;
  }

 private:
  const BatchSource& batches_;
};

// A place has the number that its lease says.
class LeasedNumbers final : public Feed, public StepObserver {
 public:
  LeasedNumbers(const Places& places, const BatchSource& batches, Leases& leases,
                std::size_t workers)
      : Feed(places), batches_(batches), leases_(leases), rests_(workers) {}

  // Of a step that all take together whoever is there first asks for all.
  Given has(std::uint64_t place, std::uint64_t, double seconds) override {
    std::uint64_t k = 0;
    const Given given = leases_.claim(place - first(), seconds, k);
    return given == Given::given && !batches_.has(k) ? Given::none : given;
  }
  Given fill(Claim& claim, double seconds) override {
    const std::uint64_t j = claim.place - first();
    const Given given =
        lockstep() ? leases_.claim_beyond(j, seconds, claim.k) : leases_.claim(j, seconds, claim.k);
    if (given != Given::given) return given;
    batches_.fill(claim.k, claim.batch);
    // Of rows that others send none comes any more.
    return claim.batch.view.size > 0 ? Given::given : Given::none;
  }
  void used(const WorkerStep& step) override { leases_.use(step.place - first()); }
  void waiting(std::size_t worker) override {
    if (!std::exchange(rests_[worker], true)) leases_.rest(true);
  }
  void resumed(std::size_t worker) override {
    if (std::exchange(rests_[worker], false)) leases_.rest(false);
  }

 private:
  const BatchSource& batches_;
  Leases& leases_;
  std::vector<char> rests_;  // by worker, its own
};

// Several at once, of which a run that begins or ends in their middle has fewer.
class Runs : public Feed {
 public:
  Runs(const Places& places, const Training& training) : Feed(places), training_(training) {}

  Given has(std::uint64_t, std::uint64_t count, double) override {
    return count > 0 ? Given::given : Given::none;
  }
  Given fill(Claim& claim, double) override {
    const std::uint64_t end = std::min<std::uint64_t>(claim.place + training_.claim, training_.end);
    claim.k = std::max(claim.place, first());
    claim.count = Training::left(end, claim.k);
    return claim.count > 0 ? Given::given : Given::none;
  }
  BatchView part(const Claim& claim, std::uint64_t done, std::uint64_t& batches) const override {
    std::size_t found = 0;
    const auto& runs = static_cast<const RunBatches&>(*training_.batches);
    const std::uint64_t most = std::min(claim.count - done, batches);
    const BatchView view = runs.follow(claim.k + done, most, found);
    batches = found;
    return view;
  }

 protected:
  const Training& training_;
};

class StreamedRuns final : public Runs {
 public:
  using Runs::Runs;

  // Rows behind the run's end are not waited for.
  Given fill(Claim& claim, double seconds) override {
    if (Runs::fill(claim, seconds) == Given::none) return Given::none;
    const std::size_t size = training_.batch_size;
    training_.batches->fill_span(claim.k * size, claim.count * size, claim.batch);
    claim.count = (claim.batch.view.size + size - 1) / size;
    return Given::given;
  }
  // Where a pass ends within the run: the batches before its end, the one that the end lies in, and
  // those behind it.
  BatchView part(const Claim& claim, std::uint64_t done, std::uint64_t& batches) const override {
    const StreamedRows& streamed = *claim.batch.streamed;
    const BatchView& run = claim.batch.view;
    const std::size_t size = training_.batch_size, begin = done * size;
    std::size_t rows = std::min<std::size_t>(run.size - begin, batches * size);
    if (const std::uint64_t pass = streamed.pass_rows) {
      const std::uint64_t left = pass - (streamed.first + begin) % pass;
      if (left < rows) rows = std::min<std::uint64_t>(rows, std::max(left / size * size, size));
    }
    batches = (rows + size - 1) / size;
    return {nullptr, run.targets.from(begin), rows, nullptr, run.sparse.from(begin)};
  }
};

}  // namespace

BatchView Feed::part(const Claim& claim, std::uint64_t, std::uint64_t& batches) const {
  batches = claim.count;
  return claim.batch.view;
}

std::unique_ptr<Feed> make_feed(Training& training, Leases* leases, bool streamed) {
  const Feed::Places places{training.from.batches,
                            training.discipline.lockstep() ? training.workers : 0, training.claim};
  if (leases) {
    auto feed =
        std::make_unique<LeasedNumbers>(places, *training.batches, *leases, training.workers);
    training.observers.add(*feed);
    return feed;
  }
  if (!training.sparse_runs) return std::make_unique<Numbers>(places, *training.batches);
  if (streamed) return std::make_unique<StreamedRuns>(places, training);
  return std::make_unique<Runs>(places, training);
}

}  // namespace leashed
