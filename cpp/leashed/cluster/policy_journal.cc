// The first of several policy servers that goes on from its journal.
#include <algorithm>
#include <string>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/policy_service.h"

namespace leashed {

void PolicyService::hear_again(std::uint64_t from) {
  if (from < run_.journal->first() || from > run_.journal->next()) {
    throw Error("the journal has lines " + std::to_string(run_.journal->first()) + " to " +
                std::to_string(run_.journal->next()) + ", and what was kept goes on at line " +
                std::to_string(from) + "; start the run again");
  }
  since_ns_ = begun_ns_;
  run_.journal->read([&](std::uint64_t number, const LogLine& line) {
    if (number == from) since_ns_ = line.at.ns;
    if (run_.alike) told_->append(line.event, line.at);
    if (number >= from) hear_again(line);
  });
  if (run_.alike && run_.again > 0) told_->goes_on();
  // (A hello is in no journal, and each connection with another server is a life of its own.)
  for (modes::Node node = 0; run_.again > 0 && node < peers_.size() && !finished_; ++node) {
    count_gone(node);
    tell({modes::Event::Kind::leave, node});
  }
  if (run_.again == 0) return;
  awaited_.clear();
  // So that they have heard where what this process tells them begins.
  if (!run_.alike) told_->append({modes::Event::Kind::wake}, Time{begun_ns_});
}

void PolicyService::hear_again(const LogLine& line) {
  using Kind = modes::Event::Kind;
  const modes::Event& event = line.event;
  if (event.node >= peers_.size()) throw Error("the journal is of more workers than may come");
  begun_ns_ = line.at.ns;
  if (event.kind == Kind::wake) due_.erase(due_.begin(), due_.upper_bound(begun_ns_));
  if (event.kind == Kind::leave) {
    ++lives_[event.node];
    count_gone(event.node);
  }
  if (event.kind == Kind::command) {
    try {
      server_.handle(event, nullptr, line.at, *this);
      last_command_ = event.argument;
      commands_.fetch_add(1, kRelaxed);
    } catch (const Error&) {  // whoever gave it was told
    }
    return;
  }
  Payload lost{nullptr, 0};
  if (const auto its = server_.lease(event.node); its && its->lease.ticket == event.ticket) {
    lost.examples = its->lease.count;
  }
  server_.handle(event, event.kind == Kind::push ? &lost : nullptr, line.at, *this);
  if (run_.updates != StopRules::kNone && server_.updates() >= run_.updates) finish();
}

void PolicyService::count_gone(modes::Node node) {
  const auto its = server_.lease(node);
  if (!its) return;
  departures_.fetch_add(1, kRelaxed);
  lost_.fetch_add(its->lease.count, kRelaxed);
}

std::uint64_t PolicyService::cut_journal() {
  if (!run_.journal) return 0;
  run_.journal->cut();
  return run_.journal->next();
}

void PolicyService::kept(std::uint64_t line) {
  if (run_.journal) run_.journal->forget(run_.alike ? std::min(line, told_->first()) : line);
}

}  // namespace leashed
