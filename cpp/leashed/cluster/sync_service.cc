#include "leashed/cluster/sync_service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/averaging.h"
#include "leashed/cluster/messages.h"
#include "leashed/net/feedback.h"
#include "leashed/update/kernels.h"

namespace leashed {

SyncService::SyncService(const std::vector<Holding>& holdings) {
  for (const auto& [fragment, length] : holdings) {
    if (length == 0 || length > kFragment || !place_.emplace(fragment, held_.size()).second) {
      throw Error("fragment " + std::to_string(fragment) + " with " + std::to_string(length) +
                  " floats cannot be held: it is empty, too long, or there twice");
    }
    held_.emplace_back().values.resize(length);
  }
}

SyncService::Counters SyncService::counters() const {
  return {exchanges_.load(kRelaxed), changes_.load(kRelaxed), not_finite_.load(kRelaxed)};
}

SyncService::Snapshot SyncService::snapshot() const {
  Snapshot snapshot;
  for (const Held& held : held_) {
    const std::lock_guard lock(held.mutex);
    snapshot.values.insert(snapshot.values.end(), held.values.begin(), held.values.end());
    snapshot.present.push_back(held.present);
    snapshot.changes += held.changes;
  }
  return snapshot;
}

void SyncService::restore(const Snapshot& snapshot) {
  std::size_t length = 0;
  for (const Held& held : held_) length += held.values.size();
  if (snapshot.values.size() != length || snapshot.present.size() != held_.size()) {
    throw Error("the snapshot is of other fragments than this server holds");
  }
  auto from = snapshot.values.begin();
  for (std::size_t i = 0; i < held_.size(); ++i) {
    Held& held = held_[i];
    const std::lock_guard lock(held.mutex);
    const auto end = from + static_cast<std::ptrdiff_t>(held.values.size());
    std::copy(std::exchange(from, end), end, held.values.begin());
    held.present = snapshot.present[i];
    held.changes = i == 0 ? snapshot.changes : 0;
  }
  exchanges_.store(snapshot.changes, kRelaxed);
  changes_.store(snapshot.changes, kRelaxed);
}

void SyncService::come(Peer peer) { clients_.try_emplace(peer); }

void SyncService::gone(Peer peer) noexcept { clients_.erase(peer); }

std::span<std::byte> SyncService::place(Peer peer, const FrameHeader& header) {
  return std::span(clients_.at(peer).payload.data(), header.length);
}

void SyncService::frame(Peer peer, const FrameHeader& header, Outbox& outbox) {
  Client& client = clients_.at(peer);
  if (header.kind == kProbe) {
    const std::span<const std::byte> same(client.payload.data(), header.length);
    return outbox.send({.kind = kProbe}, {&same, 1});
  }
  ExchangeHead head;
  if (header.kind != kExchange || header.length < sizeof head)
    throw Error("an exchange without its head");
  std::memcpy(&head, client.payload.data(), sizeof head);
  const auto found = place_.find(head.fragment);
  if (found == place_.end()) throw Error("a fragment that is not held here");
  Held& held = held_[found->second];
  const std::size_t n = held.values.size();
  const bool differs = head.codec != Codec::none;
  if (static_cast<std::uint16_t>(head.codec) >= kCodecs || head.keep > (differs ? 0 : 1)) {
    throw Error("a codec that is not known here");
  }
  const std::size_t bytes = encoded_size(head.codec, n);
  if (header.length != sizeof head + bytes) throw Error("of another length");
  if (!(head.alpha >= 0 && head.alpha <= 1)) throw Error("an alpha outside 0 to 1");
  std::byte* const payload = client.payload.data() + sizeof head;
  if (differs) {
    const auto kept = client.known.find(head.fragment);
    if (kept == client.known.end()) throw Error("by how much values differ, but not from what");
    Known& known = kept->second;
    const std::span values(values_.data(), n);
    decode_and_add(head.codec, payload, known.theta);
    std::copy(known.theta.begin(), known.theta.end(), values.begin());
    interpolate(held, head, values);
    tell(head.codec, values, known.w, payload);
  } else {
    const std::span values(reinterpret_cast<float*>(payload), n);
    Known* const known = head.keep ? &client.known[head.fragment] : nullptr;
    if (known) known->theta.assign(values.begin(), values.end());
    interpolate(held, head, values);
    if (known) known->w.assign(values.begin(), values.end());
  }
  exchanges_.fetch_add(1, kRelaxed);
  const std::span<const std::byte> reply(payload, bytes);
  outbox.send({.kind = kReply, .correlation = header.correlation}, {&reply, 1});
}

void SyncService::interpolate(Held& held, const ExchangeHead& head, std::span<float> values) {
  // While they lie in the cache. One trainer's must not become everybody's.
  if (update_kernels().first_not_finite(values.data(), values.size()) != values.size()) {
    not_finite_.fetch_add(1, kRelaxed);
    throw Error("values that are not finite");
  }
  const std::lock_guard lock(held.mutex);
  float* const w = held.values.data();
  if (!held.present) {
    std::copy(values.begin(), values.end(), w);
    held.present = true;
  } else {
    leashed::interpolate(w, values, head.alpha, head.old_reply != 0);
    if (head.alpha == 0) return;
  }
  ++held.changes;
  changes_.fetch_add(1, kRelaxed);
}

}  // namespace leashed
