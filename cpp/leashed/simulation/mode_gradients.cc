#include "leashed/simulation/mode_gradients.h"

#include <algorithm>

#include "leashed/engine/step.h"

namespace leashed {

using modes::WorkerRule;

void ModeGradients::pull_rows(std::uint32_t worker) {
  if (!played_.rows.holder()) return;
  ModePlayer& player = played_.players[worker];
  played_.data.batches().fill_span(player.lease.first, player.lease.count, batch_);
  played_.rows.holder()->pull(batch_.view, player.rows);
}

void ModeGradients::renew_rows(std::uint32_t worker, std::size_t shard) {
  RowHolder* const rows = played_.rows.holder();
  if (rows) rows->renew(played_.players[worker].rows, played_.shards.rows(), shard);
}

// All gradients of a lease, which is cut into as many parts as there are local steps.
bool ModeGradients::compute(std::uint32_t worker) {
  ModePlayer& player = played_.players[worker];
  StopFlag& stop = played_.watch.stop;
  Observers& observers = played_.watch.observers;
  if (sent_.size() == 0) sent_ = AlignedArray<float>(played_.dimension());
  const std::uint32_t steps = played_.steps_of(player);
  for (std::uint32_t i = 0; i < steps; ++i) {
    WorkerStep step{
        .worker = worker, .k = player.lease.number, .gradient = {sent_.data(), sent_.size()}};
    observers.claimed(step);
    const auto rows = [&] {
      const std::uint64_t begin = player.lease.count * i / steps;
      const std::uint64_t end = player.lease.count * (i + 1) / steps;
      played_.data.batches().fill_span(player.lease.first + begin, end - begin, batch_);
      step.set_batch(batch_);
      if (RowHolder* const held = played_.rows.holder()) {
        held->show(player.rows, batch_.view, shown_, row_gradients_);
      }
      const bool changed = i == 0 && !player.before.empty();
      step.view = {changed ? player.before.data() : theta_of(worker), 0};
      observers.read(step);
    };
    const auto gradient = [&] {
      step.seconds = in_seconds(player.computed - player.since) / steps;
      return gradient_(step.view.theta, batch_.view, sent_.data());
    };
    if (!leashed::compute(step, observers, stop, rows, gradient)) {
      return observers.abandoned(step, {.abandoned = true}), false;
    }
    observers.used(step);
    player.before.clear();
    if (played_.rule.steps_own) {
      played_.models.step(worker, sent_.data());
      ++played_.own_updates;
      if (!played_.shards[0].holds() && played_.own_updates >= played_.options.until.updates) {
        return stop.stop(StopReason::updates), false;
      }
    }
    if (played_.watch.looked()) return false;
  }
  if (played_.rule.sends == WorkerRule::Sends::model) {
    std::copy_n(played_.models[worker], played_.dimension(), sent_.data());
  }
  for (ModePlayer::Part& part : player.parts) part.pulled.release();
  if (played_.shards.size() > 1) cut(player);
  return true;
}

const float* ModeGradients::theta_of(std::uint32_t worker) {
  if (played_.rule.model == WorkerRule::Model::own) return played_.models[worker];
  const std::vector<ModePlayer::Part>& parts = played_.players[worker].parts;
  return played_.shards.assembled([&](std::size_t shard) { return parts[shard].pulled.data(); },
                                  pulled_);
}

// The servers' parts of what is sent, until each has got there.
void ModeGradients::cut(ModePlayer& player) {
  for (std::size_t shard = 0; shard < played_.shards.size(); ++shard) {
    AlignedArray<float>& sent = player.parts[shard].sent;
    if (sent.size() == 0) sent = AlignedArray<float>(played_.shards.size(shard));
    played_.shards.gather(shard, sent_.data(), sent.data());
  }
  if (played_.rows.holder()) cut_rows(player);
}

void ModeGradients::cut_rows(ModePlayer& player) {
  row_pushes_.clear();
  for (ModePlayer::Part& part : player.parts) row_pushes_.push_back(&part.rows);
  played_.rows.holder()->split(player.rows.keys, row_gradients_.data(), played_.shards.rows(),
                               row_pushes_);
}

Payload ModeGradients::payload(std::uint32_t worker, std::size_t shard) {
  ModePlayer& player = played_.players[worker];
  ModePlayer::Part& part = player.parts[shard];
  const bool whole = played_.shards.size() == 1;
  Payload payload{whole ? &sent_ : &part.sent, player.sent.count};
  if (played_.rows.holder()) {
    payload.rows = whole ? &player.rows.keys : &part.rows.keys;
    payload.row_gradients = whole ? &row_gradients_ : &part.rows.gradients;
  }
  return payload;
}

}  // namespace leashed
