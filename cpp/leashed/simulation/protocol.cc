#include "leashed/simulation/protocol.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/discipline/hogwild.h"
#include "leashed/discipline/leashed.h"
#include "leashed/discipline/synchronous.h"
#include "leashed/simulation/virtual_clock.h"

namespace leashed {
namespace {

double seconds_between(std::int64_t begin, std::int64_t end) {
  return static_cast<double>(end - begin) * 1e-9;
}

// A pin takes no time, and each attempt takes T_u from its load to its commit.
class PlayedLeashed final : public Protocol {
 public:
  PlayedLeashed(const DisciplineContext& context, LeashedSgd& discipline, Stage& stage)
      : discipline_(discipline), stage_(stage), workers_(context.workers) {}

  void read(std::uint32_t worker) override { stage_.has_read(worker, discipline_.read(worker)); }
  void update(std::uint32_t worker, float* gradient) override {
    workers_[worker].begin = stage_.now();
    workers_[worker].update.emplace(discipline_.begin(worker, gradient));
    load(worker);
  }
  void step(std::uint32_t worker) override {
    using Outcome = LeashedUpdate<ParameterVector>::Outcome;
    workers_[worker].update->commit() == Outcome::lost ? load(worker) : over(worker);
  }
  void end() override {
    for (Worker& worker : workers_) worker.update.reset();
  }

 private:
  struct Worker {
    std::optional<LeashedUpdate<ParameterVector>> update;
    std::int64_t begin = 0;
  };
  void load(std::uint32_t worker) {
    if (!workers_[worker].update->load()) return over(worker);
    stage_.step_at(after(stage_.now(), stage_.update_time(worker)), worker);
  }
  void over(std::uint32_t worker) {
    Worker& own = workers_[worker];
    Publication result = own.update->result();
    own.update.reset();
    result.update_seconds = seconds_between(own.begin, stage_.now());
    stage_.updated(worker, result);
  }

  LeashedSgd& discipline_;
  Stage& stage_;
  std::vector<Worker> workers_;
};

// Who asks first for the lock has it first; a copy and an update each keep it for their time.
class PlayedLock final : public Protocol {
 public:
  PlayedLock(const DisciplineContext& context, Discipline& discipline, Stage& stage)
      : discipline_(discipline), stage_(stage), workers_(context.workers) {}

  void read(std::uint32_t worker) override { ask(worker, nullptr); }
  void update(std::uint32_t worker, float* gradient) override { ask(worker, gradient); }
  void step(std::uint32_t worker) override {
    const Worker own = workers_[worker];
    queue_.pop_front();
    if (!queue_.empty()) take(queue_.front());
    own.gradient ? stage_.updated(worker, own.result) : stage_.has_read(worker, own.view);
  }
  // Who has the lock has made its update already.
  void end() override {
    if (queue_.empty()) return;
    const std::uint32_t first = queue_.front();
    queue_.clear();
    if (workers_[first].gradient) stage_.updated(first, workers_[first].result);
  }

 private:
  struct Worker {
    std::int64_t asked = 0;
    float* gradient = nullptr;  // null: it reads
    View view{};
    Publication result;
  };
  void ask(std::uint32_t worker, float* gradient) {
    workers_[worker].asked = stage_.now();
    workers_[worker].gradient = gradient;
    queue_.push_back(worker);
    if (queue_.size() == 1) take(worker);
  }
  void take(std::uint32_t worker) {
    Worker& own = workers_[worker];
    std::int64_t time = 0;
    if (own.gradient) {
      time = stage_.update_time(worker);
      own.result = discipline_.publish(worker, own.gradient);
      own.result.update_seconds = seconds_between(0, time);
      own.result.waiting_seconds = seconds_between(own.asked, stage_.now());
    } else {
      time = stage_.copy_time(worker);
      own.view = discipline_.read(worker);
    }
    stage_.step_at(after(stage_.now(), time), worker);
  }

  Discipline& discipline_;
  Stage& stage_;
  std::vector<Worker> workers_;
  std::deque<std::uint32_t> queue_;  // the first has the lock
};

// One worker alone needs no lock, and no copy.
class PlayedSequential final : public Protocol {
 public:
  PlayedSequential(const DisciplineContext&, Discipline& discipline, Stage& stage)
      : discipline_(discipline), stage_(stage) {}

  void read(std::uint32_t worker) override { stage_.has_read(worker, discipline_.read(worker)); }
  void update(std::uint32_t worker, float* gradient) override {
    const std::int64_t time = stage_.update_time(worker);
    result_ = discipline_.publish(worker, gradient);
    result_.update_seconds = seconds_between(0, time);
    updating_ = true;
    stage_.step_at(after(stage_.now(), time), worker);
  }
  void step(std::uint32_t worker) override {
    updating_ = false;
    stage_.updated(worker, result_);
  }
  void end() override {
    if (updating_) step(0);
  }

 private:
  Discipline& discipline_;
  Stage& stage_;
  Publication result_;
  bool updating_ = false;
};

// A step's update begins when the last worker has its gradient, and all go on when it is over: that
// takes as long as the slowest of theirs.
class PlayedSynchronous final : public Protocol {
 public:
  PlayedSynchronous(const DisciplineContext& context, Synchronous& discipline, Stage& stage)
      : discipline_(discipline),
        stage_(stage),
        gradients_(context.workers),
        asked_(context.workers) {}

  void read(std::uint32_t worker) override { stage_.has_read(worker, discipline_.read(worker)); }
  void update(std::uint32_t worker, float* gradient) override {
    gradients_[worker] = gradient;
    asked_[worker] = begin_ = stage_.now();
    if (++there_ < gradients_.size()) return;
    std::int64_t time = 0;
    for (std::uint32_t w = 0; w < there_; ++w) time = std::max(time, stage_.update_time(w));
    stage_.step_at(after(begin_, time), worker);
  }
  void step(std::uint32_t) override {
    there_ = 0;
    Publication result = discipline_.publish(gradients_);
    result.update_seconds = seconds_between(begin_, stage_.now());
    for (std::uint32_t w = 0; w < asked_.size(); ++w) {
      result.waiting_seconds = seconds_between(asked_[w], begin_);
      stage_.updated(w, result);
    }
  }
  void end() override {}

 private:
  Synchronous& discipline_;
  Stage& stage_;
  std::vector<float*> gradients_;
  std::vector<std::int64_t> asked_;
  std::int64_t begin_ = 0;   // of the update, once all are there
  std::uint32_t there_ = 0;  // who have their gradient
};

// Copies and updates go on part by part while others' do: views are torn at that grain. That two
// threads meet within one vector instruction is not played.
class PlayedHogwild final : public Protocol {
 public:
  PlayedHogwild(const DisciplineContext& context, Hogwild& discipline, Stage& stage)
      : discipline_(discipline),
        stage_(stage),
        ends_(ends_of(context)),
        workers_(context.workers) {}

  void read(std::uint32_t worker) override {
    workers_[worker].view = discipline_.begin_read(worker);
    begin(worker, stage_.copy_time(worker));
  }
  void update(std::uint32_t worker, float* gradient) override {
    Worker& own = workers_[worker];
    own.update.emplace(discipline_.begin(worker, gradient));
    own.begin = stage_.now();
    if (own.update->result().excluded) return over(worker);
    begin(worker, stage_.update_time(worker));
  }
  void step(std::uint32_t worker) override {
    Worker& own = workers_[worker];
    const std::size_t begin = own.part == 0 ? 0 : ends_[own.part - 1], end = ends_[own.part];
    own.update ? own.update->apply(begin, end) : discipline_.read_part(worker, begin, end);
    if (++own.part < ends_.size()) return next(worker);
    own.update ? over(worker) : stage_.has_read(worker, own.view);
  }
  // What is counted is made: the parts that are left.
  void end() override {
    for (std::uint32_t worker = 0; worker < workers_.size(); ++worker) {
      Worker& own = workers_[worker];
      if (!own.update || own.update->result().excluded) continue;
      for (; own.part < ends_.size(); ++own.part) {
        own.update->apply(own.part == 0 ? 0 : ends_[own.part - 1], ends_[own.part]);
      }
      over(worker);
    }
  }

 private:
  static constexpr std::size_t kParts = 64;

  struct Worker {
    View view{};
    std::optional<HogwildUpdate> update;
    std::int64_t begin = 0, time = 0;
    std::size_t part = 0;
  };
  // A stage-aware policy's parts are the variables.
  static std::vector<std::size_t> ends_of(const DisciplineContext& context) {
    if (context.staleness.stage_aware() && !context.block_ends.empty()) return context.block_ends;
    std::vector<std::size_t> ends;
    const std::size_t parts =
        context.staleness.stage_aware() ? 1 : std::min(kParts, context.dimension);
    for (std::size_t i = 1; i <= parts; ++i) ends.push_back(context.dimension * i / parts);
    return ends;
  }
  void begin(std::uint32_t worker, std::int64_t time) {
    workers_[worker].begin = stage_.now();
    workers_[worker].time = time;
    workers_[worker].part = 0;
    next(worker);
  }
  // A part is there at the end of its share of the time.
  void next(std::uint32_t worker) {
    const Worker& own = workers_[worker];
    const auto done = static_cast<double>(own.part + 1) / static_cast<double>(ends_.size());
    stage_.step_at(after(own.begin, std::llround(static_cast<double>(own.time) * done)), worker);
  }
  void over(std::uint32_t worker) {
    Worker& own = workers_[worker];
    Publication result = own.update->result();
    own.update.reset();
    result.update_seconds = seconds_between(own.begin, stage_.now());
    stage_.updated(worker, result);
  }

  Hogwild& discipline_;
  Stage& stage_;
  const std::vector<std::size_t> ends_;
  std::vector<Worker> workers_;
};

using Maker = std::unique_ptr<Protocol> (*)(const Choice&, const DisciplineContext&, Discipline&,
                                            Stage&);

template <class Played, class Kind>
std::unique_ptr<Protocol> plain(const Choice&, const DisciplineContext& context,
                                Discipline& discipline, Stage& stage) {
  return std::make_unique<Played>(context, static_cast<Kind&>(discipline), stage);
}

std::unique_ptr<Protocol> hogwild(const Choice& choice, const DisciplineContext& context,
                                  Discipline& discipline, Stage& stage) {
  if (choice["copy"] == 0) {
    throw Error(
        "Hogwild(copy=False) reads theta all the while that it computes, which virtual time cannot "
        "play; take Hogwild()");
  }
  return plain<PlayedHogwild, Hogwild>(choice, context, discipline, stage);
}

const std::map<std::string, Maker> kProtocols = {
    {"hogwild", hogwild},
    {"leashed", plain<PlayedLeashed, LeashedSgd>},
    {"locked", plain<PlayedLock, Discipline>},
    {"sequential", plain<PlayedSequential, Discipline>},
    {"synchronous", plain<PlayedSynchronous, Synchronous>},
};

}  // namespace

std::unique_ptr<Protocol> make_protocol(const Choice& choice, const DisciplineContext& context,
                                        Discipline& discipline, Stage& stage) {
  const auto make = find_choice(kProtocols, "discipline of virtual time", choice.name);
  return make(choice, context, discipline, stage);
}

}  // namespace leashed
