// Any mode of training as one value, and the modes by name. Who holds one knows none of their
// machines, which are compiled with server_policy.cc alone.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "leashed/base/choice.h"
#include "leashed/policy/lease_list.h"
#include "leashed/policy/server_machine.h"
#include "leashed/policy/worker_rule.h"

namespace leashed::modes {

class ServerPolicy {
 public:
  template <class M>
  requires(!std::same_as<M, ServerPolicy> && Machine<M>) ServerPolicy(M machine)
      : kept_(std::make_unique<Kept<M>>(std::move(machine))) {}
  ServerPolicy(const ServerPolicy& other) : kept_(other.kept_->copy()) {}
  ServerPolicy(ServerPolicy&&) = default;
  ServerPolicy& operator=(ServerPolicy other) {
    kept_.swap(other.kept_);
    return *this;
  }

  void on(const Event& event, Time now, Out& out) { kept_->on(event, now, out); }
  const WorkerRule& rule() const { return kept_->rule(); }
  bool divides_by_containing() const { return kept_->divides_by_containing(); }
  // Whether a server holds parameters; among peers nobody does.
  bool holds() const { return kept_->holds(); }
  // The examples that have been leased, and those of a lease at most.
  std::uint64_t examples_leased() const { return kept_->examples_leased(); }
  std::uint64_t largest_lease() const { return kept_->largest_lease(); }
  // Leases that are out, and those that wait to be granted again.
  std::vector<Lease> unfinished() const { return kept_->unfinished(); }
  // The one that a node has, and the version that was granted with it.
  std::optional<LeaseList::Taken> lease(Node node) const { return kept_->lease(node); }
  // Of one that follows the numbers of the batches that it has had.
  const std::vector<LeaseList::Span>& had() const { return kept_->had(); }
  // Its state, which is read into one with the same settings.
  void visit(Archive& archive) { kept_->visit(archive); }
  // One that has led is as one that follows from now on, for which no node has a lease.
  void follow() { kept_->follow(); }

  // Null: it is another machine. For tests.
  template <Machine M>
  const M* as() const {
    const auto* const kept = dynamic_cast<const Kept<M>*>(kept_.get());
    return kept ? &kept->machine : nullptr;
  }

 private:
  struct Any {
    virtual ~Any() = default;
    virtual std::unique_ptr<Any> copy() const = 0;
    virtual void on(const Event& event, Time now, Out& out) = 0;
    virtual const WorkerRule& rule() const = 0;
    virtual bool divides_by_containing() const = 0;
    virtual bool holds() const = 0;
    virtual std::uint64_t examples_leased() const = 0;
    virtual std::uint64_t largest_lease() const = 0;
    virtual std::vector<Lease> unfinished() const = 0;
    virtual std::optional<LeaseList::Taken> lease(Node node) const = 0;
    virtual const std::vector<LeaseList::Span>& had() const = 0;
    virtual void visit(Archive& archive) = 0;
    virtual void follow() = 0;
  };
  template <class M>
  struct Kept final : Any {
    explicit Kept(M m) : machine(std::move(m)) {}
    std::unique_ptr<Any> copy() const override { return std::make_unique<Kept>(machine); }
    void on(const Event& event, Time now, Out& out) override { machine.on(event, now, out); }
    const WorkerRule& rule() const override { return machine.rule(); }
    bool divides_by_containing() const override { return machine.divides_by_containing(); }
    bool holds() const override { return M::kHolds; }
    std::uint64_t examples_leased() const override { return machine.examples_leased(); }
    std::uint64_t largest_lease() const override { return machine.largest_lease(); }
    std::vector<Lease> unfinished() const override { return machine.unfinished(); }
    std::optional<LeaseList::Taken> lease(Node node) const override { return machine.lease(node); }
    const std::vector<LeaseList::Span>& had() const override { return machine.had(); }
    void visit(Archive& archive) override { machine.visit(archive); }
    void follow() override { machine.follow(); }

    M machine;
  };

  std::unique_ptr<Any> kept_;
};

// Throws Error where there is none of that name, or an argument is wrong. Arguments of all:
//
//   workers    nodes 0..workers−1 are there from the start
//   batch      examples of a lease
//   examples   of all leases, 0: endless
//   term_ns    until a lease goes to another, 0 (default): never
//   follows    1: of one of several servers, whose data another leases (coordinated.h)
//
// and of those that sum gradients of several pushes
//
//   divide_by_containing   1: a row's sum is divided by the batches that contain its id
ServerPolicy make_server_policy(const Choice& choice);

}  // namespace leashed::modes
