#include "leashed/simulation/exchanges.h"

#include <algorithm>

#include "leashed/cluster/averaging.h"
#include "leashed/cluster/messages.h"
#include "leashed/discipline/discipline.h"
#include "leashed/net/feedback.h"
#include "leashed/net/frame.h"
#include "leashed/update/kernels.h"

namespace leashed {

// Fragments lie on servers in turn: as cluster/packing.py packs what costs by its length.
Exchanges::Exchanges(const TrainersPlan& plan, const float* initial, std::size_t dimension,
                     std::size_t workers, SyncStage& stage, TrainerCounts& counts)
    : plan_(plan),
      dimension_(dimension),
      workers_(workers),
      fragments_(fragments_of(dimension)),
      parts_(std::clamp<std::size_t>(plan.parts, 1, fragments_)),
      stage_(stage),
      counts_(counts),
      paced_(plan.pace, plan.count * workers),
      held_(dimension),
      servers_(plan.servers),
      training_(plan.count, workers) {
  std::copy_n(initial, dimension, held_.data());
  const std::size_t exchanges = paced_.background() ? plan.count : plan.count * workers;
  exchanges_.reserve(exchanges);
  for (std::size_t i = 0; i < exchanges; ++i) exchanges_.emplace_back(*plan.machine);
}

void Exchanges::begin() {
  if (!paced_.background()) return;
  for (std::uint32_t trainer = 0; trainer < plan_.count; ++trainer) start(trainer);
}

bool Exchanges::stepped(std::uint32_t worker) {
  if (paced_.background() || !paced_.stepped(worker, stage_.now())) return true;
  start(worker);
  return false;
}

void Exchanges::left(std::uint32_t worker) { --training_[worker / workers_]; }

void Exchanges::play(std::uint32_t what) {
  const auto parts = static_cast<std::uint32_t>(fragments_ + 1);
  const std::uint32_t exchange = what / parts, fragment = what % parts;
  fragment == fragments_ ? end(exchange) : serve(exchange, fragment);
}

std::size_t Exchanges::bytes(const Exchange& own, std::size_t index) const {
  const auto [begin, end] = fragment(index, dimension_);
  const bool kept = !own.kept.empty() && own.kept[index];
  return kFrameHeader + encoded_size(kept ? plan_.codec : Codec::none, end - begin);
}

void Exchanges::start(std::uint32_t exchange) {
  Exchange& own = exchanges_[exchange];
  if (!own.values) {
    own.values = AlignedArray<float>(dimension_);
    if (plan_.codec != Codec::none) {
      own.kept.resize(fragments_);
      own.told.resize(dimension_);
      own.heard.resize(dimension_);
    }
  }
  const std::int64_t now = stage_.now();
  out_.clear();
  on(own.machine, {Event::Kind::idle}, {now}, out_);
  own.asked = out_.actions().front();
  float* const values = own.values.data();
  stage_.replica(trainer_of(exchange)).look(values, [&](const float* theta) {
    if (theta != values) std::copy_n(theta, dimension_, values);
  });
  if (update_kernels().first_not_finite(values, dimension_) != dimension_) {
    return stage_.not_finite();
  }
  own.begun = own.over = now;
  own.covered.clear();
  const auto first = static_cast<std::uint32_t>(exchange * (fragments_ + 1));
  for (std::size_t f = own.turn++ % parts_; f < fragments_; f += parts_) {
    own.covered.add(fragment(f, dimension_));
    ++own.outstanding;
    const std::size_t sent = sizeof(ExchangeHead) + bytes(own, f);
    counts_.bytes_out += sent;
    stage_.sync_at(server_of(f).in.carry(now, sent, plan_.bandwidth, plan_.latency),
                   first + static_cast<std::uint32_t>(f));
  }
}

void Exchanges::serve(std::uint32_t exchange, std::size_t index) {
  Exchange& own = exchanges_[exchange];
  const auto [begin, end] = fragment(index, dimension_);
  const std::span values(own.values.data() + begin, end - begin);
  const std::size_t answer = bytes(own, index);
  const bool compresses = plan_.codec != Codec::none;
  const auto answered = [&] {
    interpolate(held_.data() + begin, values, own.asked.alpha, own.asked.old_reply);
  };
  if (!compresses) {
    answered();
  } else {
    const std::span told = std::span(own.told).subspan(begin, values.size());
    const std::span heard = std::span(own.heard).subspan(begin, values.size());
    const auto pass = [&](std::span<float> known) {  // values ← what the other side makes of them
      if (own.kept[index]) {
        encoded_.resize(encoded_size(plan_.codec, values.size()));
        tell(plan_.codec, values, known, encoded_.data());
        std::copy(known.begin(), known.end(), values.begin());
      } else {
        std::copy(values.begin(), values.end(), known.begin());
      }
    };
    pass(told);
    answered();
    pass(heard);
    own.kept[index] = true;
  }
  counts_.bytes_in += answer;
  own.over = std::max(
      own.over, server_of(index).out.carry(stage_.now(), answer, plan_.bandwidth, plan_.latency));
  own.over = std::max(own.over, own.begun + 1);  // time goes on, whatever the bandwidth
  if (--own.outstanding > 0) return;
  stage_.sync_at(own.over, static_cast<std::uint32_t>(exchange * (fragments_ + 1) + fragments_));
}

void Exchanges::end(std::uint32_t exchange) {
  Exchange& own = exchanges_[exchange];
  const std::size_t trainer = trainer_of(exchange);
  out_.clear();
  on(own.machine, {Event::Kind::exchanged}, {stage_.now()}, out_);
  for (const Action& action : out_.actions()) {
    if (action.kind == Action::Kind::mix) mix(trainer, own, action.alpha);
  }
  ++counts_.rounds[trainer];
  counts_.seconds[trainer] += in_seconds(stage_.now() - own.begun);
  if (!paced_.background()) {
    paced_.synchronised(exchange, stage_.now());
    stage_.resume(exchange);
  } else if (training_[trainer] > 0) {
    start(exchange);
  }
}

void Exchanges::mix(std::size_t trainer, const Exchange& own, float alpha) {
  stage_.replica(trainer).transform(
      0, dimension_, [&](float* values, std::size_t first, std::size_t last) {
        own.covered.each(first, last, [&](std::size_t begin, std::size_t end) {
          leashed::mix({values + (begin - first), end - begin}, own.values.data() + begin, alpha);
        });
      });
}

}  // namespace leashed
