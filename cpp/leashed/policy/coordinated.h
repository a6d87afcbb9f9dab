// What all modes have in common: who takes part, who waits, whose batch goes to another, and when
// there is nothing more to do. An algorithm derives from Coordinated<itself> and says
//
//   admits(node)               whether the node may begin another batch now
//   token()                    of the next new batch
//   step()                     with which tokens are compared
//   granted(node)              it has begun one
//   arrived(node, taken, ...)  its push is there: hold, apply, drop; true if others may go on now
//   entered(node), departed(node, ...)
//   command(argument)
//   finish(...)                all batches have come back: apply what is still held
//
// where the defaults below do not do, and visit_own(archive), what its state is beside this one.
//
// A node whose lease has run out counts as gone until it pulls again; then it enters anew. So
// nobody waits for the dead, and who was merely slow loses its batch and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/policy/lease_list.h"
#include "leashed/policy/server_machine.h"
#include "leashed/policy/worker_rule.h"

namespace leashed::modes {

struct Job {
  std::uint32_t workers;
  std::uint64_t batch, examples;  // of a lease; of all, 0: endless
  std::int64_t term_ns = 0;       // until a lease goes to another; 0: never
  // Of one of several servers, whose data another leases: its own leases are tickets without an
  // end, and each push says for which batch it is, which counts here once.
  bool follows = false;
  // Of several gradients' rows: a row's sum is divided by the batches that contain its id, rather
  // than by all that are summed. It is for who holds the rows: machines do not look at it.
  bool divide_by_containing = false;
};

template <class Algorithm>
class Coordinated {
 public:
  Coordinated(const Job& job, WorkerRule rule)
      : leases_(job.batch, job.examples, job.follows),
        rule_(rule),
        term_ns_(job.term_ns),
        divides_by_containing_(job.divide_by_containing) {}

  // Whether a server holds parameters.
  static constexpr bool kHolds = true;

  const WorkerRule& rule() const { return rule_; }
  bool divides_by_containing() const { return divides_by_containing_; }
  bool present(Node node) const { return node < states_.size() && states_[node] != State::away; }
  bool leased(Node node) const { return leases_.has(node); }
  std::optional<LeaseList::Taken> lease(Node node) const { return leases_.of(node); }
  std::uint64_t examples_leased() const { return leases_.leased(); }
  // Examples of a lease, at most.
  std::uint64_t largest_lease() const { return leases_.largest(); }
  // Those that are out, and those that wait to be granted again.
  std::vector<Lease> unfinished() const { return leases_.unfinished(); }
  // Of one that follows those that it has had.
  const std::vector<LeaseList::Span>& had() const { return leases_.had(); }

  // It is one of several from now on whose data another leases, and has led until now. Nobody has a
  // lease any more, or waits.
  void follow() {
    leases_.follow();
    term_ns_ = 0;
    finished_ = false;
    for (const Node node : parked_) states_[node] = State::busy;
    parked_.clear();
  }

  // Its state, which is read into a machine with the same settings, but that there may be more
  // examples.
  void visit(Archive& archive) {
    leases_.visit(archive, states_.size());
    archive(version_, n_);
    archive.of_each(states_);
    archive.of_each(unanswered_);
    archive(parked_, finished_);
    if (archive.reads()) become(archive);
    self().visit_own(archive);
  }

  void on(const Event& event, Time now, Out& out) {
    if (event.node >= kMostNodes) throw Error("node must be below 16777216");
    switch (event.kind) {
      case Event::Kind::push:
        settle(push(event, now, out), now, out);
        break;
      case Event::Kind::leave:
        leases_.give_back(event.node);
        depart(event.node, out);
        settle(true, now, out);
        break;
      case Event::Kind::join:
        enter(event.node);
        settle(true, now, out);
        break;
      case Event::Kind::wake: {
        bool expired = false;
        leases_.expire(now, [&](Node node) {
          depart(node, out);
          expired = true;
        });
        settle(expired, now, out);
        break;
      }
      case Event::Kind::command:
        self().command(event.argument);
        settle(true, now, out);
        break;
      case Event::Kind::data_end:
        leases_.close(event.ticket);
        settle(true, now, out);
        break;
      case Event::Kind::pull:
        pull(event.node, now, out);
        break;
    }
  }

 protected:
  // Called by the constructor of an algorithm, once it is whole.
  void begin(std::uint32_t workers) {
    for (Node node = 0; node < workers; ++node) enter(node);
  }

  bool admits(Node) const { return true; }
  std::uint64_t token() const { return leases_.next_number(); }  // an update for each batch
  std::uint64_t step() const { return version_; }
  void granted(Node) {}
  bool arrived(Node, const LeaseList::Taken&, Time, Out& out) {
    apply_alone(out);
    return false;
  }
  void entered(Node) {}
  void departed(Node, Out&) {}
  void command(std::uint32_t) {
    throw Error("this mode knows no commands; gba, switching and automatic do");
  }
  void finish(Out&) {}
  std::uint32_t updates_by_others(Node) { return 0; }  // since this node's last, for the grant

  void apply_alone(Out& out) {
    out.add(Action::Kind::hold);
    const std::uint64_t step = version_++;
    out.apply(version_, step).divisor = 1;
    out.list(Slot{0, 1});
  }

  void park(Node node) {
    states_[node] = State::parked;
    parked_.push_back(node);
  }

  LeaseList leases_;
  std::uint64_t version_ = 0;  // updates, meetings, exchanges
  std::uint32_t n_ = 0;        // present

 private:
  enum class State : std::uint8_t { away, busy, parked };

  Algorithm& self() { return static_cast<Algorithm&>(*this); }

  // What was read, where it can be.
  void become(Archive& archive) {
    std::vector<Node> parked = parked_;
    std::ranges::sort(parked);
    std::size_t next = 0;
    for (Node node = 0; node < states_.size(); ++node) {
      const State state = states_[node];
      const bool waits = next < parked.size() && parked[next] == node;
      archive.require(state <= State::parked && waits == (state == State::parked));
      archive.require(state == State::busy || !leased(node));
      next += waits;
    }
    archive.require(next == parked.size());
    archive.require(n_ == states_.size() - std::ranges::count(states_, State::away));
    finished_ = finished_ && leases_.spent();
  }

  bool push(const Event& event, Time now, Out& out) {
    const auto taken = leases_.finish(event);
    if (taken) {
      unanswered_[event.node] = true;
      return self().arrived(event.node, *taken, now, out);
    }
    Action& action = out.add(Action::Kind::drop);
    action.ticket = event.ticket;
    action.why = Why::late;
    return false;
  }

  void pull(Node node, Time now, Out& out) {
    if (leases_.spent()) return end(node, out);
    enter(node);
    if (states_[node] == State::parked || leases_.has(node)) return;
    if (may_begin(node)) {
      grant(node, now, out);
    } else {
      park(node);
    }
  }

  // Of several servers the one that leases the data says who may.
  bool may_begin(Node node) {
    return leases_.available() && (leases_.follows() || self().admits(node));
  }

  void grant(Node node, Time now, Out& out) {
    states_[node] = State::busy;
    const Time until{now.ns + term_ns_};
    answer(node, out).lease = leases_.take(node, term_ns_ > 0 ? until : Time{INT64_MAX}, version_,
                                           self().token(), self().step());
    if (term_ns_ > 0) out.add(Action::Kind::wake).at = until;
    self().granted(node);
  }

  Action& answer(Node node, Out& out) {
    unanswered_[node] = false;
    Action& action = out.add(Action::Kind::grant);
    action.node = node;
    action.version = version_;
    action.n = n_;
    action.c = self().updates_by_others(node);
    return action;
  }

  // Who has a model of its own takes what is held once more, after its last push.
  void end(Node node, Out& out) {
    const bool takes = Algorithm::kHolds && rule_.model == WorkerRule::Model::own;
    if (takes && present(node) && unanswered_[node]) answer(node, out);
    out.add(Action::Kind::end).node = node;
  }

  // After an event: who waits goes on in the order of coming, and all end when nothing is left.
  void settle(bool others, Time now, Out& out) {
    if (others && !parked_.empty()) {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < parked_.size(); ++i) {
        const Node node = parked_[i];
        if (may_begin(node)) {
          grant(node, now, out);
        } else {
          parked_[kept++] = node;
        }
      }
      parked_.resize(kept);
    }
    if (!leases_.spent()) return;
    if (!finished_) self().finish(out);
    finished_ = true;
    for (const Node node : parked_) {
      states_[node] = State::busy;
      end(node, out);
    }
    parked_.clear();
  }

  void enter(Node node) {
    if (node >= states_.size()) {
      states_.resize(std::size_t{node} + 1, State::away);
      unanswered_.resize(states_.size());
    }
    if (present(node)) return;
    states_[node] = State::busy;
    unanswered_[node] = false;
    ++n_;
    self().entered(node);
  }

  void depart(Node node, Out& out) {
    if (!present(node)) return;
    if (states_[node] == State::parked) std::erase(parked_, node);
    states_[node] = State::away;
    --n_;
    self().departed(node, out);
  }

  WorkerRule rule_;
  std::int64_t term_ns_;
  bool divides_by_containing_;
  std::vector<State> states_;
  std::vector<bool> unanswered_;  // by node: it has pushed, and was granted nothing since
  std::vector<Node> parked_;      // first come, first served
  bool finished_ = false;
};

}  // namespace leashed::modes
