// What a process has of a vector that processes share: its mapping, one participant in it, and the
// rule and policy by which that trains. Threads of the process take turns as the participant, any
// of them may close it, and views outlive that.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "leashed/backend/readable.h"
#include "leashed/base/choice.h"
#include "leashed/discipline/participant.h"

namespace leashed {

class SharedEngine final : public Readable {
 public:
  struct Parts {
    std::size_t dimension;
    Choice rule, staleness;
    double persistence;  // T_p, may be infinite
  };
  // Throws Error, which tells what is wrong: see SharedVector.
  static std::shared_ptr<SharedEngine> create(const std::string& name, const float* theta,
                                              const Parts& parts, std::size_t participants,
                                              bool in_place, std::string_view description);
  SharedEngine(SharedVector vector, const Parts& parts);

  // All of these throw Error where it is closed; those that change or pin something, too, in a
  // child that was forked since.

  std::unique_ptr<Held> hold() override;
  Publication push(const float* gradient, std::uint64_t t_read);
  // Copies theta and the rule's states, a dimension each, of one version (in place: while they
  // change), which is returned.
  std::uint64_t copy_state(float* vectors);

  std::size_t dimension() const override { return dimension_; }
  std::size_t states() const { return attached()->part.updater().layout().states; }
  std::uint64_t t() const { return attached()->vector.t(); }
  std::size_t live() const { return attached()->vector.live(); }
  std::size_t participants() const { return attached()->vector.participants(); }
  std::vector<pid_t> pids() const { return attached()->vector.pids(); }
  void reap() { attached()->vector.reap(); }

  // Leaves, as soon as no view is held and no other call is under way.
  void close();
  bool closed() const;

 private:
  struct Attachment {
    Attachment(SharedVector vector, const Parts& parts);

    SharedVector vector;
    const std::unique_ptr<Rule> rule;
    const std::unique_ptr<const StalenessPolicy> staleness;
    std::mutex mutex;  // for a turn
    ParticipantSgd part;
  };
  // Until it is given up, it is there.
  std::shared_ptr<Attachment> attached() const;
  std::unique_lock<std::mutex> locked() const;

  const std::size_t dimension_;
  const pid_t process_;
  mutable std::mutex mutex_;  // of the pointer
  std::shared_ptr<Attachment> attachment_;
};

}  // namespace leashed
