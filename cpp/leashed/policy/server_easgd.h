// EASGD with a server (Zhang, Choromanska and LeCun, 2015; shadowsync, Algorithm 2): after `gap`
// steps of its own a node exchanges its model with the holder's, and mixes with the reply: the
// holder's model as this exchange has left it, whoever comes next. So the grant answers the push.
// The synchroniser of the same name (easgd.h) does so beside a training of many threads.
#pragma once

#include "leashed/policy/coordinated.h"

namespace leashed::modes {

class Easgd : public Coordinated<Easgd> {
 public:
  Easgd(const Job& job, double alpha, std::uint32_t gap)
      : Coordinated(job, own_models(gap, WorkerRule::Takes::mix, {.alpha = alpha})),
        alpha_(static_cast<float>(alpha)) {
    begin(job.workers);
  }

 private:
  friend Coordinated;

  void visit_own(Archive&) {}
  bool arrived(Node node, const LeaseList::Taken& taken, Time, Out& out) {
    Action& action = out.add(Action::Kind::exchange);
    action.node = node;
    action.ticket = taken.lease.ticket;
    action.alpha = alpha_;
    action.version = ++version_;
    park(node);  // until the end of this very event
    return true;
  }

  float alpha_;
};

}  // namespace leashed::modes
