#include "leashed/cluster/round.h"

#include <algorithm>
#include <string>

#include "leashed/base/clock.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/averaging.h"
#include "leashed/discipline/discipline.h"
#include "leashed/update/kernels.h"

namespace leashed {
Round::Round(const Synchroniser& machine, Servers* servers, Peers* peers, const CustomMix& custom,
             std::size_t dimension, RoundCounters& counters)
    : machine_(machine),
      servers_(servers),
      peers_(peers),
      custom_(custom),
      dimension_(dimension),
      counters_(counters),
      copy_(dimension),
      other_(peers ? dimension : 0) {}

void Round::restore(std::span<const float> states) {
  if (states.size() != shared_states(machine_) * dimension_) {
    throw Error("the states that a synchronisation is to go on with are " +
                std::to_string(states.size()) + " numbers, and not " +
                std::to_string(shared_states(machine_) * dimension_));
  }
  begin_states(states);
  std::copy(states.begin(), states.end(), states_.data());
}

void Round::begin(Discipline& discipline, std::uint64_t turn, const Deadline& deadline) {
  turn_ = turn;
  exchange(discipline, 0, false, deadline);
}

bool Round::join(Discipline& discipline, const Deadline& deadline) {
  if (!states_) {  // these are of before it trains, also of who is alone, or has a ring later
    const std::span<float> theta(other_.data(), dimension_);
    see(discipline, theta);
    begin_states(theta);
  }
  try {
    const Peers::Begin begin = peers_->begin();
    if (begin == Peers::Begin::copies) take_over(discipline, deadline);
    return begin != Peers::Begin::none;
  } catch (const Error&) {
    return false;
  }
}

bool Round::run(Discipline& discipline, const Deadline& deadline, bool moved) {
  const double start = now();
  const std::size_t parts = peers_ ? peers_->parts() : 1;
  if (moved) owed_ = parts;
  Outcome outcome = Outcome::failed;
  try {
    outcome = round(discipline, deadline);
  } catch (const NotFinite&) {
    outcome = Outcome::not_finite;
  } catch (const Error&) {  // of a connection, or somebody has sent what does not belong there
  }
  if (outcome == Outcome::still) return true;
  if (outcome == Outcome::nobody) return false;
  // An exchange that is under way when the training ends is no failed one: nobody else loses by it.
  if (outcome == Outcome::failed && servers_ && deadline.called_off()) return false;
  if (outcome == Outcome::not_finite) counters_.not_finite.fetch_add(1, kRelaxed);
  (outcome == Outcome::done ? counters_.rounds : counters_.failed).fetch_add(1, kRelaxed);
  if (outcome == Outcome::done && !all_ && !deadline.called_off()) {
    counters_.partial.fetch_add(1, kRelaxed);
  }
  counters_.nanoseconds.fetch_add(static_cast<std::uint64_t>((now() - start) * 1e9), kRelaxed);
  if (outcome == Outcome::done && owed_ > 0) --owed_;
  if (outcome == Outcome::failed) owed_ = parts;  // here: others may have had it
  return outcome == Outcome::done;
}

Round::Outcome Round::round(Discipline& discipline, const Deadline& deadline) {
  const auto time = [] { return Time{static_cast<std::int64_t>(now() * 1e9)}; };
  out_.clear();
  on(machine_, {Event::Kind::idle}, time(), out_);
  for (std::size_t i = 0; i < out_.actions().size(); ++i) {
    const Action action = out_.actions()[i];
    const Outcome outcome = carry_out(action, discipline, deadline);
    if (outcome != Outcome::done) return outcome;
    if (action.kind == Action::Kind::exchange) {
      if (done_.empty()) break;  // theta is what has come
      on(machine_, {Event::Kind::exchanged}, time(), out_);
    } else if (action.kind == Action::Kind::all_reduce) {
      on(machine_, {Event::Kind::summed, count_}, time(), out_);
    }
  }
  for (const Covered* come : {&done_, &first_}) {
    come->each(0, dimension_, [this](std::size_t begin, std::size_t end) {
      counters_.floats.fetch_add(end - begin, kRelaxed);
    });
  }
  return Outcome::done;
}

Round::Outcome Round::carry_out(const Action& action, Discipline& discipline,
                                const Deadline& deadline) {
  switch (action.kind) {
    case Action::Kind::exchange:
      return exchange(discipline, action.alpha, action.old_reply, deadline);
    case Action::Kind::all_reduce:
      return reduce(discipline, action.difference, deadline);
    case Action::Kind::average:
      done_.each(0, dimension_, [&](std::size_t begin, std::size_t end) {
        average({other_.data() + begin, end - begin}, action.members);
      });
      return Outcome::done;
    case Action::Kind::advance:
      advance(action);
      return Outcome::done;
    case Action::Kind::mix:
      mix(discipline, done_, action.alpha, action.difference);
      return Outcome::done;
    case Action::Kind::custom:
      call(discipline);
      return Outcome::done;
  }
  return Outcome::failed;
}

Round::Outcome Round::exchange(Discipline& discipline, float alpha, bool old_reply,
                               const Deadline& deadline) {
  if (!servers_->begin(turn_++)) return Outcome::nobody;
  bool finite = true;
  done_.clear();
  first_.clear();
  discipline.look(copy_.data(), [&](const float* theta) {
    finite = update_kernels().first_not_finite(theta, dimension_) == dimension_;
    if (finite) all_ = servers_->exchange(theta, alpha, old_reply, done_, first_, deadline);
  });
  if (!first_.empty()) mix(discipline, first_, 1);
  servers_->end();
  if (!finite) return Outcome::not_finite;
  return done_.empty() && first_.empty() ? Outcome::failed : Outcome::done;
}

Round::Outcome Round::reduce(Discipline& discipline, bool keep, const Deadline& deadline) {
  const Peers::Begin begin = peers_->begin();
  if (begin == Peers::Begin::none) return Outcome::nobody;
  if (begin == Peers::Begin::copies) {
    if (owed_ > 0) owed_ = peers_->parts();
    take_over(discipline, deadline);
  }
  const std::span<float> theta(other_.data(), dimension_);
  see(discipline, theta);
  begin_states(theta);
  if (keep) std::copy(theta.begin(), theta.end(), copy_.data());
  done_.clear();
  const Peers::Sum sum = peers_->sum(theta, done_, owed_ > 0, deadline);
  count_ = sum.members;
  if (!finite()) return Outcome::not_finite;
  return sum.moved ? Outcome::done : Outcome::still;
}

// A member's theta that is not finite is its own affair: the sum, the same for all, shows it to
// all.
bool Round::finite() const {
  bool finite = true;
  done_.each(0, dimension_, [&](std::size_t begin, std::size_t end) {
    const std::size_t n = end - begin;
    finite &= update_kernels().first_not_finite(other_.data() + begin, n) == n;
  });
  return finite;
}

void Round::see(Discipline& discipline, std::span<float> theta) {
  discipline.look(copy_.data(),
                  [theta](const float* now) { std::copy_n(now, theta.size(), theta.data()); });
}

// global ← theta, velocity ← 0, where there are states and nobody has any yet.
void Round::begin_states(std::span<const float> theta) {
  if (states_) return;
  states_ = AlignedArray<float>(std::max<std::size_t>(1, shared_states(machine_) * dimension_));
  if (shared_states(machine_) == 0) return;
  std::fill_n(states_.data(), shared_states(machine_) * dimension_, 0.0f);
  std::copy_n(theta.begin(), dimension_, states_.data());
}

// All go on with the states of one of them, and who is new with its theta. What comes is taken only
// when it has come whole.
void Round::take_over(Discipline& discipline, const Deadline& deadline) {
  const std::size_t states = shared_states(machine_) * dimension_;
  AlignedArray<float> all(dimension_ + states);
  const std::span<float> theta(all.data(), dimension_);
  see(discipline, theta);
  begin_states(theta);
  std::copy_n(states_.data(), states, all.data() + dimension_);
  const bool is_new = peers_->take({all.data(), all.size()}, deadline);
  std::copy_n(all.data() + dimension_, states, states_.data());
  if (!is_new) return;
  std::copy(theta.begin(), theta.end(), other_.data());
  done_.add({0, dimension_});
  mix(discipline, done_, 1);
  done_.clear();
}

void Round::advance(const Action& action) {
  float* const global = states_.data();
  float* const velocity = states_.data() + dimension_;
  done_.each(0, dimension_, [&](std::size_t begin, std::size_t end) {
    leashed::advance(action, {other_.data() + begin, end - begin}, global + begin,
                     velocity + begin);
  });
}

void Round::mix(Discipline& discipline, const Covered& where, float alpha, bool difference) {
  discipline.transform(0, dimension_, [&](float* values, std::size_t first, std::size_t last) {
    where.each(first, last, [&](std::size_t begin, std::size_t end) {
      const std::span<float> theta(values + (begin - first), end - begin);
      if (difference) {
        mix_difference(theta, other() + begin, copy_.data() + begin, alpha);
      } else {
        leashed::mix(theta, other() + begin, alpha);
      }
    });
  });
}

void Round::call(Discipline& discipline) {
  AlignedArray<float> before(dimension_), changed(dimension_), others(dimension_);
  see(discipline, {before.data(), dimension_});
  std::copy_n(before.data(), dimension_, changed.data());
  std::copy_n(before.data(), dimension_, others.data());  // where nothing has come
  done_.each(0, dimension_, [&](std::size_t begin, std::size_t end) {
    std::copy_n(other() + begin, end - begin, others.data() + begin);
  });
  custom_(changed.data(), others.data(), dimension_, count_);
  discipline.transform(0, dimension_, [&](float* values, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) values[i - first] += changed[i] - before[i];
  });
}

}  // namespace leashed
