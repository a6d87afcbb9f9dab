// The shadow thread (shadowsync, Algorithm 1): synchronises without pause while the workers train,
// and never makes them wait.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "leashed/cluster/trainer_sync.h"

namespace leashed {

class Background final : public TrainerSync {
 public:
  explicit Background(const SyncPlan& plan) : TrainerSync(plan, 1) {}
  ~Background() override { end(); }

  std::size_t threads() const override { return 1; }
  void begin(const Synchronised& training, const std::function<bool()>& go_on) override;
  void stepped(std::size_t) override {
    if (!moved_.load(std::memory_order_relaxed)) moved_.store(true, std::memory_order_relaxed);
  }
  void waiting(std::size_t) override {}
  void resumed(std::size_t) override {}
  void leave(std::size_t) override;
  void end() override;
  void hold(bool holds) override { holds_.store(holds, std::memory_order_relaxed); }
  bool at_rest() override {
    return !moved_.load(std::memory_order_relaxed) && rests_.load(std::memory_order_acquire);
  }
  std::span<const float> states() const override {
    return round_ ? round_->states() : std::span<const float>();
  }
  std::vector<WithinGap> within() const override {  // of the thread that exchanges
    if (!uses_servers() || !round_) return {};
    return {WithinGap{.turn = round_->turn()}};
  }

 private:
  void shadow(const Synchronised& training, Round& round);
  // Until this trainer's theta has moved, another waits for this one, or something is to be done;
  // and for as long as it is on hold.
  void rest(bool owes);

  // Workers that have not left; acquire and release, so that the last one comes after the others.
  std::atomic<std::size_t> workers_{0};
  std::atomic<bool> ended_{false};              // tells the thread to end; joining orders the rest
  std::atomic<bool> cancelled_{false};          // and to give up what it waits for
  const std::atomic<bool>* stopped_ = nullptr;  // the training
  // A worker has made a step since the last round. Relaxed: a step that a round sees late is the
  // next one's.
  std::atomic<bool> moved_{false};
  std::atomic<bool> holds_{false};  // relaxed: hands nothing over
  // Release by the thread, acquire in at_rest(): what it has done by then is there.
  std::atomic<bool> rests_{false};
  std::mutex mutex_;
  std::condition_variable left_;
  bool has_left_ = false;       // the thread; under the lock
  std::optional<Round> round_;  // the thread's own, once it has begun
  std::jthread thread_;
};

}  // namespace leashed
