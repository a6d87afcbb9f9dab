#include "leashed/simulation/reductions.h"

#include <algorithm>
#include <utility>

#include "leashed/cluster/averaging.h"
#include "leashed/discipline/discipline.h"
#include "leashed/simulation/link.h"
#include "leashed/update/kernels.h"

namespace leashed {

Reductions::Reductions(const TrainersPlan& plan, const float* initial, std::size_t dimension,
                       std::size_t workers, SyncStage& stage, TrainerCounts& counts)
    : plan_(plan),
      dimension_(dimension),
      workers_(workers),
      parts_(std::clamp<std::size_t>(plan.parts, 1, fragments_of(dimension))),
      stage_(stage),
      counts_(counts),
      paced_(plan.pace, plan.count * workers),
      machine_(*plan.machine),
      states_(shared_states(machine_) * dimension),
      trainers_(plan.count),
      present_(plan.count) {
  for (Trainer& trainer : trainers_) trainer.training = workers;
  if (!states_) return;
  std::fill_n(states_.data(), states_.size(), 0.0f);
  std::copy_n(initial, dimension, states_.data());
}

void Reductions::begin() {
  if (!paced_.background()) return;
  for (std::size_t trainer = 0; trainer < trainers_.size(); ++trainer) enter(trainer);
}

bool Reductions::stepped(std::uint32_t worker) {
  if (paced_.background()) return true;
  const std::size_t index = worker / workers_;
  Trainer& own = trainers_[index];
  const bool due = paced_.stepped(worker, stage_.now());
  if (!own.called && (!due || present_ == 1)) return true;
  own.called = true;
  own.stopped.push_back(worker);
  if (own.stopped.size() == own.training) enter(index);
  return false;
}

void Reductions::left(std::uint32_t worker) {
  const std::size_t index = worker / workers_;
  Trainer& own = trainers_[index];
  if (--own.training > 0) {
    if (own.called && own.stopped.size() == own.training) enter(index);
    return;
  }
  --present_;
  if (own.entered && !under_way_) {
    own.entered = false;
    --entered_;
  }
  go();
}

void Reductions::enter(std::size_t index) {
  Trainer& own = trainers_[index];
  if (!own.values) own.values = AlignedArray<float>(dimension_);
  float* const values = own.values.data();
  stage_.replica(index).look(values, [&](const float* theta) {
    if (theta != values) std::copy_n(theta, dimension_, values);
  });
  own.begun = stage_.now();
  own.entered = true;
  ++entered_;
  go();
}

void Reductions::go() {
  if (under_way_ || present_ == 0 || entered_ < present_) return;
  members_.clear();
  for (std::size_t t = 0; t < trainers_.size(); ++t) {
    if (trainers_[t].entered) members_.push_back(t);
  }
  if (present_ == 1) {
    Trainer& alone = trainers_[members_.front()];
    if (!paced_.background()) {
      alone.entered = false;
      --entered_;
      release(alone);
    }
    return;
  }
  out_.clear();
  on(machine_, {Event::Kind::idle}, {stage_.now()}, out_);
  under_way_ = true;
  const auto n = static_cast<double>(members_.size());
  const auto [begin, end] = part();
  const double bytes = static_cast<double>(end - begin) * sizeof(float);
  const double steps = 2 * (n - 1);
  const double seconds = steps * (plan_.latency + bytes / n / plan_.bandwidth);
  const auto sent = static_cast<std::uint64_t>(steps * bytes);  // by all of them
  counts_.bytes_out += sent;
  counts_.bytes_in += sent;
  stage_.sync_at(after(stage_.now(), std::max<std::int64_t>(1, in_ns(seconds))), 0);
}

void Reductions::play(std::uint32_t) {
  const std::vector<std::size_t> members = std::exchange(members_, {});
  const auto [begin, end] = part();
  ++round_;
  under_way_ = false;
  entered_ = 0;
  sum_.assign(end - begin, 0.0f);
  for (const std::size_t t : members) {
    const float* const values = trainers_[t].values.data() + begin;
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += values[i];
  }
  if (update_kernels().first_not_finite(sum_.data(), sum_.size()) != sum_.size()) {
    return stage_.not_finite();
  }
  out_.clear();
  on(machine_, {Event::Kind::summed, static_cast<std::uint32_t>(members.size())}, {stage_.now()},
     out_);
  for (const Action& action : out_.actions()) {
    if (action.kind == Action::Kind::average) average(sum_, action.members);
    if (action.kind == Action::Kind::advance) {
      advance(action, sum_, states_.data() + begin, states_.data() + dimension_ + begin);
    }
    if (action.kind != Action::Kind::mix) continue;
    for (const std::size_t t : members) {
      stage_.replica(t).transform(begin, end, [&](float* values, std::size_t from, std::size_t to) {
        const std::span<float> theta(values, to - from);
        const float* const mean = sum_.data() + (from - begin);
        if (action.difference) {
          mix_difference(theta, mean, trainers_[t].values.data() + from, action.alpha);
        } else {
          mix(theta, mean, action.alpha);
        }
      });
    }
  }
  for (const std::size_t t : members) {
    Trainer& own = trainers_[t];
    own.entered = false;
    ++counts_.rounds[t];
    counts_.seconds[t] += in_seconds(stage_.now() - own.begun);
    if (!paced_.background()) release(own);
  }
  if (!paced_.background()) return;
  for (const std::size_t t : members) {
    if (trainers_[t].training > 0) enter(t);
  }
}

void Reductions::release(Trainer& own) {
  own.called = false;
  for (const std::uint32_t worker : std::exchange(own.stopped, {})) {
    paced_.synchronised(worker, stage_.now());
    stage_.resume(worker);
  }
}

Range Reductions::part() const {
  const std::size_t all = fragments_of(dimension_), turn = round_ % parts_;
  return {std::min(dimension_, all * turn / parts_ * kFragment),
          std::min(dimension_, all * (turn + 1) / parts_ * kFragment)};
}

}  // namespace leashed
