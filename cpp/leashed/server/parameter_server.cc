#include "leashed/server/parameter_server.h"

#include <algorithm>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {

using modes::Action;
using modes::Event;
using modes::Mixing;
using modes::WorkerRule;

ParameterServer::ParameterServer(const modes::ServerPolicy& machine,
                                 const DisciplineContext& context, RowHolder* rows)
    : machine_(machine),
      holder_(context),
      aggregator_(context.dimension),
      block_ends_(context.block_ends.empty() ? std::vector{context.dimension}
                                             : context.block_ends) {
  if (rows && rule().sends == WorkerRule::Sends::model) {
    throw Error(
        "the rows of tables are shared by all workers, which send models in this mode; take one "
        "whose workers push gradients");
  }
  if (rows) rows_.emplace(*rows, machine_.divides_by_containing());
  counts_.worker_examples.resize(context.workers);
  counts_.worker_kept.resize(context.workers);
  granted_.resize(context.workers);
}

bool ParameterServer::has_global_model() const {
  const WorkerRule& r = rule();
  const bool ensemble = r.takes == WorkerRule::Takes::mix && r.mixing.kind == Mixing::Kind::fixed &&
                        r.mixing.alpha == 0;
  return holds() && !ensemble;
}

void ParameterServer::handle(const Event& event, const Payload* payload, Time now, Sink& sink) {
  out_.clear();
  machine_.on(event, now, out_);
  if (event.kind == Event::Kind::push) arrived(event, *payload);
  if (joins(event)) reach(event.node);  // whatever is kept is of all nodes, also of who waits
  for (const Action& action : out_.actions()) carry_out(action, event, payload, sink);
}

void ParameterServer::visit(Archive& archive) {
  archive(machine_);
  archive.of_each(granted_);
  archive(held_);
  const std::uint64_t t = holder_.pull().t();
  for (const Granted& granted : granted_) archive.require(granted.t <= t);
  const std::size_t expected = archive.expected().size();
  archive.require(expected <= held_.size());
  for (std::uint32_t slot = 0; slot < held_.size(); ++slot) {
    const Held& held = held_[slot];
    archive.require(held.node < granted_.size() && held.t <= t);
    archive.require((held.ticket != 0) == (slot < expected));
    if (held.ticket == 0 || held.lost) continue;
    aggregator_.visit(archive, slot);
    if (rows_) rows_->visit(archive, slot);
  }
}

void ParameterServer::visit_counts(Archive& archive) {
  ModeCounts& c = counts_;
  archive(c.late, c.stale, c.straggler, c.applied, c.missing, c.exchanges, c.data_staleness);
  archive.of_each(c.worker_examples);
  archive.of_each(c.worker_kept);
  for (const auto sum : RowPublication::kSums) archive(c.rows.*sum);
  archive(c.rows.stalest);
  for (std::uint64_t& octave : c.rows.octaves) archive(octave);
}

// Who pulls is a node from then on, but at the end.
bool ParameterServer::joins(const Event& event) const {
  if (event.kind == Event::Kind::join) return true;
  return event.kind == Event::Kind::pull &&
         std::ranges::none_of(
             out_.actions(), [](const Action& action) { return action.kind == Action::Kind::end; });
}

void ParameterServer::reach(modes::Node node) {
  if (node < granted_.size()) return;
  const std::size_t size = std::size_t{node} + 1;
  granted_.resize(size);
  counts_.worker_examples.resize(size);
  counts_.worker_kept.resize(size);
}

void ParameterServer::arrived(const Event& event, const Payload& payload) {
  if (event.node >= granted_.size()) return;  // it never had anything to push
  counts_.worker_examples[event.node] += payload.examples;
  if (!holds()) ++counts_.worker_kept[event.node];
}

void ParameterServer::carry_out(const Action& action, const Event& event, const Payload* payload,
                                Sink& sink) {
  switch (action.kind) {
    case Action::Kind::grant:
      granted(action, sink);
      break;
    case Action::Kind::hold:
      hold(action.slot, event, *payload);
      break;
    case Action::Kind::apply:
      apply(action, sink);
      break;
    case Action::Kind::drop:
      drop(action, event, payload, sink);
      break;
    case Action::Kind::exchange:
      exchange(action.alpha, *payload, event, sink);
      break;
    case Action::Kind::meet:
      sink.meet(out_.nodes(action), event.node);
      ++counts_.meetings;
      break;
    case Action::Kind::wake:
      sink.wake(action.at);
      break;
    case Action::Kind::end:
      sink.end(action.node);
      break;
  }
}

void ParameterServer::granted(const Action& action, Sink& sink) {
  ParameterVector::Pin latest = holder_.pull();
  const std::uint64_t t = latest.t();
  reach(action.node);
  granted_[action.node] = {action.lease.token, t};
  sink.grant({action.node, action.lease, action.version, action.n, action.c, std::move(latest), t});
}

void ParameterServer::hold(std::uint32_t slot, const Event& event, const Payload& payload) {
  const bool lost = payload.values == nullptr && !payload.reduced;
  if (payload.values) aggregator_.hold(slot, *payload.values);
  if (!lost && rows_) rows_->hold(slot, *payload.rows, *payload.row_gradients);
  if (slot >= held_.size()) held_.resize(std::size_t{slot} + 1);
  const Granted& granted = granted_[event.node];
  held_[slot] = {event.node,    granted.t, payload.examples, event.ticket,
                 granted.token, lost,      payload.reduced};
}

// A gradient is damped for the updates that came between its pull and now; what the policy leaves
// out is no part of the mean. Of several the rule gets the mean weighted by their factors, which it
// clips, and the mean of these, which damps it: as of one, clipping comes before damping.
void ParameterServer::apply(const Action& action, Sink& sink) {
  const bool models = rule().sends == WorkerRule::Sends::model;
  const std::uint64_t t = holder_.pull().t();
  bool reduced = false;
  double divisor = action.divisor;
  const double each = action.keeps_divisor ? 0 : 1;
  if (rows_) apply_rows(action, t + reduced_, sink);
  parts_.clear();
  nodes_.clear();
  tickets_.clear();
  publications_.clear();
  factors_.clear();
  for (const modes::Slot& slot : out_.slots(action)) {
    const Held held = std::exchange(held_[slot.index], {});
    if (held.lost) {
      counts_.missing += held.examples;
      divisor -= each;
      continue;
    }
    reduced = reduced || held.reduced;
    const std::uint64_t tau = t - held.t;
    const Updater::Damping damping = models ? Updater::Damping{} : holder_.damping(tau);
    const double factor = damping.factor;
    if (factor == 0) {
      sink.settled(held.node, {.excluded = true});
      divisor -= each;
      continue;
    }
    parts_.push_back({slot.index, slot.weight * (damping.variables ? 1 : factor)});
    if (damping.variables) {
      const std::size_t variables = holder_.updater().layout().blocks;
      factors_.insert(factors_.end(), damping.variables, damping.variables + variables);
    }
    counts_.applied += held.examples;
    ++counts_.worker_kept[held.node];
    if (!models) count_data_staleness(action.step, held.token);
    nodes_.push_back(held.node);
    tickets_.push_back(held.ticket);
    publications_.push_back(
        {.published = true, .t = t, .factor = factor, .staleness_compute = tau});
  }
  if (parts_.empty()) return;
  if (models) {
    const float* const model = mean(divisor, sink);
    sink.updating(tickets_, nullptr, 1);
    return holder_.change([&](float* theta) { std::copy_n(model, holder_.dimension(), theta); });
  }
  if (reduced) {
    ++reduced_;
  } else {
    factors_.empty() ? apply_damped(divisor, sink) : apply_staged(divisor, sink);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    holder_.updater().applied(publications_[i].staleness_compute);
    sink.settled(nodes_[i], publications_[i]);
  }
}

void ParameterServer::apply_damped(double divisor, Sink& sink) {
  const auto parted = [&](const auto& f) { in_parts(sink, f); };
  if (parts_.size() == 1 && divisor == 1) {
    const float* const gradient = aggregator_[parts_[0].slot];
    sink.updating(tickets_, gradient, parts_[0].weight);
    return holder_.apply(gradient, parts_[0].weight, parted);
  }
  double factors = 0;
  for (const Publication& one : publications_) factors += one.factor;
  const double damping = factors / static_cast<double>(parts_.size());
  for (Aggregator::Part& part : parts_) part.weight /= damping;  // of the size of 1
  const float* const gradient = mean(divisor, sink);
  sink.updating(tickets_, gradient, damping);
  holder_.apply(gradient, damping, parted);
}

// Variable by variable, as if each were a vector of its own but for clipping.
void ParameterServer::apply_staged(double divisor, Sink& sink) {
  const std::size_t parts = parts_.size(), variables = factors_.size() / parts;
  mean_factors_.assign(variables, 0);
  for (std::size_t i = 0; i < factors_.size(); ++i) mean_factors_[i % variables] += factors_[i];
  for (double& mean : mean_factors_) mean /= static_cast<double>(parts);
  const Updater::Damping damping{*std::ranges::max_element(mean_factors_), mean_factors_.data()};
  const float* gradient = aggregator_[parts_[0].slot];
  if (parts > 1 || divisor != 1) {
    gradient = aggregator_.begin(parts_, divisor);
    for (std::size_t v = 0, begin = 0; v < variables; ++v) {
      of_variable_.clear();
      for (std::size_t p = 0; p < parts; ++p) {
        const double factor = factors_[p * variables + v];
        const double share = mean_factors_[v] > 0 ? factor / mean_factors_[v] : 0;
        of_variable_.push_back(parts_[p].weight * share);
      }
      aggregator_.weigh(of_variable_);
      aggregator_.add(begin, block_ends_[v]);
      begin = block_ends_[v];
    }
  }
  sink.updating(tickets_, gradient, damping.factor);
  holder_.apply(gradient, damping);
}

const float* ParameterServer::mean(double divisor, Sink& sink) {
  const float* const sum = aggregator_.begin(parts_, divisor);
  in_parts(sink, [this](std::size_t begin, std::size_t end) { aggregator_.add(begin, end); });
  return sum;
}

template <class F>
void ParameterServer::in_parts(Sink& sink, const F& f) {
  constexpr std::size_t kPart = 8192;  // floats: some microseconds, against a tenth to begin it
  const std::size_t dimension = holder_.dimension();
  const std::size_t parts = (dimension + kPart - 1) / kPart;
  if (parts == 1) return f(0, dimension);
  work_.run(
      static_cast<std::uint32_t>(parts),
      [&](std::uint32_t i) { f(i * kPart, std::min((i + 1) * kPart, dimension)); },
      [&] { sink.working(parts); });
}

void ParameterServer::count_data_staleness(std::uint64_t step, std::uint64_t token) {
  constexpr std::uint64_t kLast = 1 << 14;
  const std::uint64_t tau = std::min(kLast, step > token ? step - token : 0);
  if (tau >= counts_.data_staleness.size()) counts_.data_staleness.resize(tau + 1);
  ++counts_.data_staleness[tau];
}

// Each row decides for itself: also those of a gradient that the policy leaves out.
void ParameterServer::apply_rows(const Action& action, std::uint64_t t, Sink& sink) {
  parts_.clear();
  double divisor = action.divisor;
  for (const modes::Slot& slot : out_.slots(action)) {
    if (held_[slot.index].lost) {
      divisor -= action.keeps_divisor ? 0 : 1;
    } else {
      parts_.push_back({slot.index, slot.weight});
    }
  }
  if (parts_.empty()) return;
  sink.updating_rows();
  counts_.rows.add(rows_->apply(parts_, divisor, t, action.keeps_divisor));
  sink.updated_rows();
}

// Of what is held, or of what has just come. What comes twice is late, and is not what is held
// under the same ticket.
void ParameterServer::drop(const Action& action, const Event& event, const Payload* payload,
                           Sink& sink) {
  modes::Node node = event.node;
  std::uint64_t examples = payload ? payload->examples : 0;
  RowKeys* rows = payload ? payload->rows : nullptr;
  const bool late = action.why == modes::Why::late;
  for (std::uint32_t slot = 0; slot < held_.size() && !late; ++slot) {
    if (held_[slot].ticket != action.ticket) continue;
    const Held held = std::exchange(held_[slot], {});
    node = held.node;
    examples = held.examples;
    rows = rows_ && !held.lost ? &rows_->keys(slot) : nullptr;
  }
  if (rows && rows_) rows_->drop(*rows);
  if (late && !holds() && node < granted_.size()) --counts_.worker_kept[node];
  switch (action.why) {
    case modes::Why::late:
      counts_.late += examples;
      break;
    case modes::Why::stale:
      counts_.stale += examples;
      break;
    case modes::Why::straggler:
      counts_.straggler += examples;
      break;
  }
  sink.settled(node, {});
}

void ParameterServer::exchange(float alpha, const Payload& payload, const Event& event,
                               Sink& sink) {
  if (!payload.values) {
    counts_.missing += payload.examples;
    return;
  }
  const float* const model = payload.values->data();
  sink.updating({&event.ticket, 1}, nullptr, 1);
  holder_.change([&](float* theta) {
    for (std::size_t i = 0; i < holder_.dimension(); ++i) {
      theta[i] = (1 - alpha) * theta[i] + alpha * model[i];
    }
  });
  ++counts_.exchanges;
  ++counts_.worker_kept[event.node];
}

}  // namespace leashed
