// A mode of training with a parameter server, or peer to peer: a copyable value without sockets,
// threads, clocks or parameters. What happens is told to it as an event, with the time; what is to
// be done it answers as actions, which whoever drives it carries out. Time is given, never asked
// for, and does not go back. At one moment events come in the order of Event::Kind: were a worker
// to pull before another has pushed, the two would differ although they are equally fast.
//
// A worker pulls, is granted a lease, computes, pushes under the lease's ticket, and pulls again. A
// pull that cannot be granted yet is remembered: the grant, or the end, comes with a later event. A
// pull while a lease is out says nothing: who has lost its batch says leave first.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "leashed/base/archive.h"
#include "leashed/policy/time.h"

namespace leashed::modes {

using Node = std::uint32_t;  // workers 0..n−1; who joins later may have any number below kMostNodes
inline constexpr Node kMostNodes = 1u << 24;

// What one push stands for. `first` and `count` are a span of examples, so that modes that switch
// may differ in batch size; a worker with local steps cuts it into as many parts.
struct Lease {
  std::uint64_t ticket;        // from 1, never given twice
  std::uint64_t number;        // of the batch: gradients are summed in this order
  std::uint64_t first, count;  // examples
  std::uint64_t token;         // the step at which it would be applied if all were equally fast

  void visit(Archive& archive) { archive(ticket, number, first, count, token); }
};

struct Event {
  enum class Kind : std::uint8_t {
    push,     // of what was computed under `ticket` on `version`; the pull after it is an event too
    leave,    // the node is gone: its leases go to others
    join,     // 0..workers−1 are there from the start, and who pulls joins
    command,  // what `argument` means is the mode's
    data_end,  // no examples behind the first `ticket`: for streams, whose length nobody knew
    pull,
    wake,  // a moment that was asked for has come
  } kind;
  Node node = 0;
  // Of a push also the version that it was computed on, for who keeps the books: machines go by
  // what they granted, and believe nobody.
  std::uint64_t ticket = 0, version = 0;
  std::uint32_t argument = 0;
  Lease lease = {};  // of a push to a machine that follows (coordinated.h): what it stands for
};

struct Slot {
  std::uint32_t index;
  float weight;
};

enum class Why : std::uint8_t {
  late,       // the lease had gone to another
  stale,      // GBA, eq. 1
  straggler,  // its round was over
};

struct Action {
  enum class Kind : std::uint8_t {
    // node: parameters at `version`, the lease; n and c for who mixes. A lease of no examples: the
    // last answer to who has a model of its own, before its end.
    grant,
    hold,   // keep what was just pushed in `slot`
    apply,  // Σ weight·slot / divisor → the rule (of models: becomes the vector) → `version`
    drop,   // what came under `ticket`; if it is held, its slot is free again
    exchange,  // holder ← (1 − alpha) holder + alpha model; the reply is the new holder: `version`
    meet,      // the nodes' models become their mean
    wake,      // an event is wanted at `at`
    end,       // node: there are no further batches
  } kind;
  Node node = 0;
  Lease lease = {};
  // Of grant, apply, exchange: updates (exchanges, meetings) that there have been.
  std::uint64_t version = 0;
  std::uint64_t step = 0;  // apply: the one that tokens are compared with (gba, eq. 1)
  std::uint64_t ticket = 0;
  std::uint32_t slot = 0;
  std::uint32_t n = 0, c = 0;  // nodes there are; updates by others since this one's last
  float alpha = 0;
  float divisor = 1;
  bool keeps_divisor = false;  // apply: whatever of the slots is left out by who carries it out
  Time at = {0};
  Why why = Why::late;
  std::uint32_t listed = 0, list_size = 0;  // Out::slots, Out::nodes
};

// What a machine answers with; used again and again, so that nothing is allocated after a while.
class Out {
 public:
  Action& add(Action::Kind kind) { return actions_.emplace_back(Action{kind}); }
  Action& apply(std::uint64_t version, std::uint64_t step) {
    Action& action = add(Action::Kind::apply);
    action.listed = static_cast<std::uint32_t>(slots_.size());
    action.version = version;
    action.step = step;
    return action;
  }
  Action& meet() {
    Action& action = add(Action::Kind::meet);
    action.listed = static_cast<std::uint32_t>(nodes_.size());
    return action;
  }
  // Into the list of the action that was added last.
  void list(Slot slot) {
    slots_.push_back(slot);
    ++actions_.back().list_size;
  }
  void list(Node node) {
    nodes_.push_back(node);
    ++actions_.back().list_size;
  }

  std::span<const Action> actions() const { return actions_; }
  std::span<const Slot> slots(const Action& a) const { return {&slots_[a.listed], a.list_size}; }
  std::span<const Node> nodes(const Action& a) const { return {&nodes_[a.listed], a.list_size}; }
  void clear() {
    actions_.clear();
    slots_.clear();
    nodes_.clear();
  }

 private:
  std::vector<Action> actions_;
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
};

template <class M>
concept Machine = std::copyable<M> &&
    requires(M m, const Event& e, Time now, Out& out, Archive& archive) {
  m.on(e, now, out);
  m.rule();
  m.visit(archive);
};

}  // namespace leashed::modes
