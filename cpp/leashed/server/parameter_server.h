// What a mode of training decides, carried out: events are told to its machine
// (policy/server_machine.h), and what that answers is done to the parameters that are held, to what
// has been pushed and is kept, and to the counts. What concerns the workers goes to a sink. It
// knows no threads, clocks or sockets: events come one after the other, each with its time, so
// whoever drives it from several threads has a lock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "leashed/base/joint_work.h"
#include "leashed/discipline/publication.h"
#include "leashed/policy/server_policy.h"
#include "leashed/server/aggregator.h"
#include "leashed/server/holder.h"
#include "leashed/server/row_aggregator.h"

namespace leashed {

// What a mode decided.
struct ModeCounts {
  std::uint64_t late = 0, stale = 0, straggler = 0;  // dropped, in examples
  std::uint64_t applied = 0;                         // examples, of pushes that were summed
  std::uint64_t missing = 0;                         // of those that were lost on the way
  std::uint64_t exchanges = 0, meetings = 0;
  // Examples of leases whose workers were gone before they pushed, and workers that went. Whoever
  // drives the server counts them: it knows only of those that it was told of.
  std::uint64_t lost = 0, departures = 0;
  // Gradients applied by their data staleness (gba, 4.1), the steps between a batch's token and its
  // application; the last bin has what is staler.
  std::vector<std::uint64_t> data_staleness;
  std::vector<std::uint64_t> worker_examples;  // pushed by each
  std::vector<std::uint64_t> worker_kept;      // pushes by each that were not dropped or left out
  RowPublication rows;                         // what became of the gradients of tables' rows
};

// What comes with a push.
struct Payload {
  // A gradient, or a model; where it is kept, other memory is given. Null: what its other parts
  // stand for has been lost with its worker on the way to this one of several servers.
  AlignedArray<float>* values;
  std::uint64_t examples;
  // Of tables, where the server has any, likewise: the rows that were pulled, and their gradients.
  RowKeys* rows = nullptr;
  AlignedArray<float>* row_gradients = nullptr;
  // It is in a sum of others', who make the update: there are no values, and none are lost.
  bool reduced = false;
};

struct Grant {
  modes::Node node;
  modes::Lease lease;
  std::uint64_t version;
  std::uint32_t n, c;
  ParameterVector::Pin pulled;  // the parameters now
  std::uint64_t t;              // updates to them
};

// Who tells the workers. Called in the order of the mode's actions, while the event is handled.
class Sink {
 public:
  virtual ~Sink() = default;

  virtual void grant(Grant grant) = 0;
  // An event `wake` is wanted at that time.
  virtual void wake(Time at) = 0;
  // The nodes' models become their mean; one of them is who pushed.
  virtual void meet(std::span<const modes::Node> nodes, modes::Node from) = 0;
  virtual void end(modes::Node node) = 0;
  // What became of a gradient: published, excluded, or else dropped.
  virtual void settled(modes::Node node, const Publication& publication) = 0;
  // Before an update: the tickets whose pushes it is of, in the order of the sum; the rule is given
  // factor · mean, or, where models are pushed, null: it takes no part. For who looks at updates.
  virtual void updating(std::span<const std::uint64_t> /*tickets*/, const float* /*mean*/,
                        double /*factor*/) {}
  // Before and after rows of tables are updated. For who takes the time.
  virtual void updating_rows() {}
  virtual void updated_rows() {}
  // What is done now may be helped with: so many parts, of ParameterServer::work().
  virtual void working(std::size_t /*parts*/) {}
};

class ParameterServer {
 public:
  // `context.workers` workers hold what they have pulled at once, and may have any number. rows: of
  // the tables that gradients are of too; null: of none. Throws Error where workers send models and
  // there are rows, which all share.
  ParameterServer(const modes::ServerPolicy& machine, const DisciplineContext& context,
                  RowHolder* rows = nullptr);

  // `payload` is a push's; null: the event is none.
  void handle(const modes::Event& event, const Payload* payload, Time now, Sink& sink);

  const modes::WorkerRule& rule() const { return machine_.rule(); }
  // Peers have nobody who holds anything: their first grant brings what all begin with.
  bool holds() const { return machine_.holds(); }
  // Whether what is held is what is trained, rather than the mean of the workers' own models.
  bool has_global_model() const;
  // As of its mode.
  std::uint64_t examples_leased() const { return machine_.examples_leased(); }
  std::uint64_t largest_lease() const { return machine_.largest_lease(); }
  std::vector<modes::Lease> unfinished() const { return machine_.unfinished(); }
  std::optional<modes::LeaseList::Taken> lease(modes::Node node) const {
    return machine_.lease(node);
  }
  // Nodes below this one have pulled, or may have a lease from the beginning.
  std::size_t nodes() const { return granted_.size(); }
  // What decides, to look at.
  const modes::ServerPolicy& machine() const { return machine_; }
  // To the parameters, with those that others have made of their own sums, and have not told yet.
  std::uint64_t updates() { return holder_.pull().t() + reduced_; }
  std::uint64_t reduced() const { return reduced_; }  // of these
  // θ and the rule's state as the first `updates` of them have left these.
  void come_home(const float* buffer, std::uint64_t updates) {
    holder_.take(buffer, updates);
    reduced_ -= updates;
  }
  // They are lost, updates of so many examples.
  void lose_reduced(std::uint64_t examples) {
    reduced_ = 0;
    counts_.applied -= examples;
  }
  // All but the parameters that are held, the rule's state, and what was counted.
  void visit(Archive& archive);
  // It is one of several from now on that decide by themselves, whose data another leases.
  void follow() { machine_.follow(); }
  // What was counted, of as many nodes as there are.
  void visit_counts(Archive& archive);
  // The node, which has a lease, has pulled the parameters as they are now.
  void pulled_again(modes::Node node, std::uint64_t t) { granted_[node].t = t; }
  Holder& holder() { return holder_; }
  const Holder& holder() const { return holder_; }
  const ModeCounts& counts() const { return counts_; }
  // What those who wait may help with, while an event is handled.
  JointWork& work() { return work_; }

 private:
  struct Held {
    modes::Node node = 0;
    std::uint64_t t = 0, examples = 0;
    std::uint64_t ticket = 0, token = 0;  // no ticket: the slot is free
    bool lost = false;
    bool reduced = false;  // never in a checkpoint

    void visit(Archive& archive) { archive(node, t, examples, ticket, token, lost); }
  };
  // A node's lease. What a push was computed on is what was granted, whatever its worker says.
  struct Granted {
    std::uint64_t token = 0, t = 0;

    void visit(Archive& archive) { archive(token, t); }
  };

  bool joins(const modes::Event& event) const;
  void reach(modes::Node node);
  void arrived(const modes::Event& event, const Payload& payload);
  void carry_out(const modes::Action& action, const modes::Event& event, const Payload* payload,
                 Sink& sink);
  void granted(const modes::Action& action, Sink& sink);
  void hold(std::uint32_t slot, const modes::Event& event, const Payload& payload);
  void apply(const modes::Action& action, Sink& sink);
  // Of parts_, gradients with a factor each, or factors_ for each variable.
  void apply_damped(double divisor, Sink& sink);
  void apply_staged(double divisor, Sink& sink);
  // f(begin, end) for all parameters, in parts that others may take.
  template <class F>
  void in_parts(Sink& sink, const F& f);
  const float* mean(double divisor, Sink& sink);  // of parts_
  void count_data_staleness(std::uint64_t step, std::uint64_t token);
  void apply_rows(const modes::Action& action, std::uint64_t t, Sink& sink);
  void drop(const modes::Action& action, const modes::Event& event, const Payload* payload,
            Sink& sink);
  void exchange(float alpha, const Payload& payload, const modes::Event& event, Sink& sink);

  modes::ServerPolicy machine_;
  Holder holder_;
  Aggregator aggregator_;
  const std::vector<std::size_t> block_ends_;  // where variables end
  std::optional<RowAggregator> rows_;
  std::vector<Granted> granted_;  // by node
  std::vector<Held> held_;        // by slot
  std::uint64_t reduced_ = 0;
  std::vector<Aggregator::Part> parts_;
  std::vector<modes::Node> nodes_;         // of whom an update's parts are
  std::vector<std::uint64_t> tickets_;     // of these
  std::vector<Publication> publications_;  // of these
  std::vector<double> factors_;            // of each, by variable, where a policy is stage-aware
  std::vector<double> of_variable_, mean_factors_;
  modes::Out out_;
  ModeCounts counts_;
  JointWork work_;
};

}  // namespace leashed
