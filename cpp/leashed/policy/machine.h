// A synchroniser of replicas: a copyable value without sockets, threads or clocks. What happens is
// told to it as an event, with the time; what is to be done it answers as actions, which whoever
// drives it carries out (over sockets: cluster/round.h). Time is given, never asked for. Modes of
// training through a parameter server are such values too (server_machine.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "leashed/policy/time.h"

namespace leashed {

struct Event {
  enum class Kind : std::uint8_t {
    idle,       // a round may begin
    exchanged,  // the holders' values have come
    summed,     // and so has the sum over all members
  } kind;
  std::uint32_t members = 1;  // summed: of how many
};

// Three vectors are spoken of: theta, the trainer's own; `other`, what comes from outside; and
// `global` with its `velocity`, which all members carry on alike.
struct Action {
  enum class Kind : std::uint8_t {
    exchange,  // holder ← (1 − alpha) holder + alpha theta; other ← the new holder, or the old one
    all_reduce,  // seen ← theta; other ← the sum of all members' theta
    average,     // other ← other / members
    advance,  // velocity ← momentum velocity + eta (other − global); global and other move by it
    mix,  // theta ← (1 − alpha) theta + alpha other; or theta ← theta + alpha (other − seen)
    custom,  // theta changes as a function from outside says, of other
  } kind;
  float alpha = 0;
  bool old_reply = false;
  std::uint32_t members = 1;
  float eta = 1, momentum = 0;
  bool nesterov = false;
  bool difference = false;  // all_reduce, mix: the latter, for which `seen` is kept
};

// What a machine answers with; used again and again, so that nothing is allocated.
class Out {
 public:
  Action& add(Action::Kind kind) { return actions_.emplace_back(Action{kind}); }
  std::span<const Action> actions() const { return actions_; }
  void clear() { actions_.clear(); }

 private:
  std::vector<Action> actions_;
};

template <class M>
concept Machine = std::copyable<M> && requires(M m, const Event& e, Time now, Out& out) {
  m.on(e, now, out);
};

}  // namespace leashed
