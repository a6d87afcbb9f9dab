#include "leashed/backend/shared_engine.h"

#include <unistd.h>

#include <utility>

#include "leashed/base/error.h"
#include "leashed/discipline/leashed.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/kernels.h"
#include "leashed/update/registry.h"

namespace leashed {

SharedEngine::Attachment::Attachment(SharedVector attached, const Parts& parts)
    : vector(std::move(attached)),
      rule(make_rule(parts.rule, vector.participants())),
      staleness(make_staleness(parts.staleness)),
      part(vector, parts.dimension, *rule, *staleness, persistence_bound(parts.persistence)) {}

std::shared_ptr<SharedEngine> SharedEngine::create(const std::string& name, const float* theta,
                                                   const Parts& parts, std::size_t participants,
                                                   bool in_place, std::string_view description) {
  const auto rule = make_rule(parts.rule, participants);
  const auto staleness = make_staleness(parts.staleness);
  const DisciplineContext context{theta, parts.dimension, participants, 0, *rule, *staleness};
  const Updater updater(context);
  const AlignedArray<float> initial = updater.initial(context);
  return std::make_shared<SharedEngine>(
      SharedVector::create(name, initial.data(), updater.layout().length(), participants, in_place,
                           description),
      parts);
}

SharedEngine::SharedEngine(SharedVector vector, const Parts& parts)
    : dimension_(parts.dimension),
      process_(getpid()),
      attachment_(std::make_shared<Attachment>(std::move(vector), parts)) {}

// Not in a forked child, which may have got the mutex locked, and has one thread.
std::unique_lock<std::mutex> SharedEngine::locked() const {
  return getpid() == process_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

std::shared_ptr<SharedEngine::Attachment> SharedEngine::attached() const {
  const auto lock = locked();
  if (!attachment_) throw Error("this SharedVector is closed; attach again");
  return attachment_;
}

void SharedEngine::close() {
  std::shared_ptr<Attachment> last;  // goes after the lock
  const auto lock = locked();
  last.swap(attachment_);
}

bool SharedEngine::closed() const {
  const auto lock = locked();
  return !attachment_;
}

std::unique_ptr<Held> SharedEngine::hold() {
  struct View final : Held {
    std::shared_ptr<Attachment> attachment;
    SharedVector::Participant::Pin pin;
    ~View() override {
      if (!attachment->vector.is_mine()) return;  // a forked child's copy; it may be locked there
      const std::lock_guard turn(attachment->mutex);
      pin.release();
    }
  };
  const auto attachment = attached();
  attachment->vector.require_mine();
  auto held = std::make_unique<View>();
  held->attachment = attachment;
  const std::lock_guard turn(attachment->mutex);
  SharedVector::Participant& participant = attachment->part.participant();
  if (attachment->vector.in_place()) {
    held->view = {participant.data(), participant.t()};
  } else {
    held->pin = participant.view();
    held->view = {held->pin.data(), held->pin.t()};
  }
  return held;
}

Publication SharedEngine::push(const float* gradient, std::uint64_t t_read) {
  const auto attachment = attached();
  attachment->vector.require_mine();
  const std::lock_guard turn(attachment->mutex);
  return attachment->part.push(gradient, t_read);
}

std::uint64_t SharedEngine::copy_state(float* vectors) {
  const auto attachment = attached();
  attachment->vector.require_mine();
  const std::lock_guard turn(attachment->mutex);
  SharedVector::Participant& participant = attachment->part.participant();
  SharedVector::Participant::Pin pin;
  if (!attachment->vector.in_place()) pin = participant.pin();
  const std::uint64_t t = pin ? pin.t() : participant.t();
  const float* buffer = pin ? pin.data() : participant.data();
  const Layout& layout = attachment->part.updater().layout();
  for (std::size_t k = 0; k <= layout.states; ++k) {
    update_kernels().copy_racy(vectors + k * layout.dimension, buffer + k * layout.stride(),
                               layout.dimension);
  }
  return t;
}

}  // namespace leashed
