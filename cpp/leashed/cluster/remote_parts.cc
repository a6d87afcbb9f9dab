#include "leashed/cluster/remote_parts.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"

namespace leashed {

namespace {

constexpr std::size_t kPartHeadFloats = sizeof(GrantHead) / sizeof(float);
constexpr std::size_t kSentTailFloats = sizeof(PartTail) / sizeof(float);
constexpr std::byte kPartProbe{1};
static_assert(sizeof(GrantHead) >= sizeof(ModeWelcome));

}  // namespace

RemoteParts::RemoteParts(Conversation& talk, const ModeShards& shards)
    : talk_(talk), shards_(shards), parts_(shards.servers() - 1) {
  for (std::size_t s = 1; s < servers(); ++s) {
    part(s).granted = AlignedArray<float>(kPartHeadFloats + shards.size(s));
    part(s).sent = AlignedArray<float>(shards.size(s) + kSentTailFloats);
  }
}

void RemoteParts::welcomed(const ModeHello& hello, const ModeWelcome& said) {
  hello_ = {hello.run, hello.client, hello.life, hello.terms, said.node, said.life};
  known_ = true;
  lease_ = 0;
  for (Part& of : parts_) begin(of);
}

void RemoteParts::begin(Part& of) {
  of.pushing = of.fresh = of.left = of.leaving = of.sends = of.leaves = false;
  of.looks = of.looks_up = of.gives = false;
  of.gave = 0;
  of.pulls = shards_.by == Deciding::itself;
}

void RemoteParts::granted(const GrantHead& head) {
  lease_ = head.ticket;
  for (Part& of : parts_) of.gives = false;  // of a round, which is over
  if (shards_.by != Deciding::by_first) return;
  for (Part& of : parts_) of.pulls = true;
}

bool RemoteParts::there() const {
  return lease_ != 0 && std::ranges::all_of(parts_, [this](const Part& of) {
           return of.fresh && (shards_.by != Deciding::alike || of.ticket == lease_);
         });
}

PulledModel RemoteParts::pulled(std::size_t server) const {
  const Part& of = part(server);
  GrantHead head;
  std::memcpy(&head, of.granted.data(), sizeof head);
  return {head.n, head.c, head.t, of.granted.data() + kPartHeadFloats};
}

void RemoteParts::look_up(AskedRows& rows, std::uint64_t ticket) {
  rows_ = &rows;
  asks_under_ = ticket;
  for (Part& of : parts_) of.looks = of.looks_up = true;
}

bool RemoteParts::looked_up() const { return std::ranges::none_of(parts_, &Part::looks_up); }

void RemoteParts::give_rows() {
  for (std::size_t s = 1; s < servers(); ++s) {
    Part& of = part(s);
    const auto rows = rows_->gradients(s);
    of.pushed.assign(rows.begin(), rows.end());
    of.gives = true;
  }
}

bool RemoteParts::rows_given() const {
  return std::ranges::none_of(parts_, [](const Part& of) { return of.gives || of.gave > 0; });
}

void RemoteParts::push(const GrantHead& lease, const float* all) {
  const PartTail tail{lease.number, lease.first, lease.count, lease.token};
  lease_ = 0;
  for (std::size_t s = 1; s < servers(); ++s) {
    Part& of = part(s);
    shards_.gather(s, all, of.sent.data());
    std::memcpy(of.sent.data() + shards_.size(s), &tail, sizeof tail);
    of.pushed.assign(1, std::as_bytes(std::span(of.sent.data(), of.sent.size())));
    if (rows_) {
      const auto rows = rows_->gradients(s);
      of.pushed.insert(of.pushed.end(), rows.begin(), rows.end());
    }
    of.sends = true;
    of.fresh = false;
  }
}

void RemoteParts::leave() {
  for (Part& of : parts_) of.leaves = true;
}

bool RemoteParts::left() const { return std::ranges::all_of(parts_, &Part::left); }

RemoteParts::Turn RemoteParts::turn() {
  bool something = false;
  for (std::size_t s = 1; s < servers(); ++s) {
    Part& of = part(s);
    try {
      if (talk_.renew(s)) {
        something = true;
        of.quiet = now();
        if (std::exchange(of.greeted, false)) return Turn::lost;
        of.welcomed = of.probes = false;
      }
      if (!talk_.has(s)) continue;
      something |= say(s);
      something |= hear(s);
      if (of.left && !of.leaving && lease_ != 0) return Turn::lost;
    } catch (const ConnectionError& error) {
      strange_ += error.reason == ConnectionError::Reason::refused;
      talk_.drop(s);
      of.welcomed = of.probes = false;
      something = true;
      if (std::exchange(of.greeted, false)) return Turn::lost;
    }
  }
  return something ? Turn::something : Turn::nothing;
}

bool RemoteParts::forget() {
  known_ = false;
  lease_ = 0;
  bool unsent = false;
  for (std::size_t s = 1; s < servers(); ++s) {
    Part& of = part(s);
    unsent |= of.sends || of.pushing;
    begin(of);
    if (std::exchange(of.greeted, false)) talk_.drop(s);
    of.welcomed = of.probes = false;
    of.quiet = now();
  }
  return unsent;
}

bool RemoteParts::say(std::size_t server) {
  Part& of = part(server);
  bool something = false;
  while (talk_.free(server)) {
    if (std::exchange(of.pushing, false)) something = true;
    if (!known_) break;
    if (!of.greeted) {
      const auto hello = std::as_bytes(std::span(&hello_, 1));
      talk_.say(server, {.kind = kPartHello}, {&hello, 1});
      of.greeted = true;
    } else if (!of.welcomed) {
      break;
    } else if (of.looks && asks_under_ != 0 && of.ticket != asks_under_) {
      break;  // it is yet to grant that
    } else if (std::exchange(of.looks, false)) {
      const auto ids = rows_->lookup(server);
      talk_.say(server, {.kind = kLookup, .correlation = of.ticket}, {&ids, 1});
    } else if (std::exchange(of.gives, false)) {
      talk_.say(server, {.kind = kRoundRows, .correlation = of.ticket}, of.pushed);
      ++of.gave;
    } else if (std::exchange(of.sends, false)) {
      // The pull goes with it, where it need not wait for the first server.
      const bool pulls = shards_.by == Deciding::itself;
      const std::uint16_t kind = pulls ? kPartPull : kPart;
      talk_.say(server, {.kind = kind, .correlation = of.ticket}, of.pushed);
      of.pushing = true;
    } else if (std::exchange(of.pulls, false)) {
      talk_.say(server, {.kind = kModePull}, {});
    } else if (std::exchange(of.leaves, false)) {
      talk_.say(server, {.kind = kModeLeave}, {});
      of.leaving = true;
    } else {
      break;
    }
    something = true;
  }
  return something;
}

bool RemoteParts::hear(std::size_t server) {
  Part& of = part(server);
  const auto header = talk_.hear(server, [&](const FrameHeader& frame) -> std::span<std::byte> {
    std::size_t length = 0;  // that is looked for; nothing has none
    switch (frame.kind) {
      case kGrant: {
        const std::span whole(of.granted.data(), of.granted.size());
        if (!of.welcomed) break;
        if (shards_.by == Deciding::alike && frame.length == sizeof(GrantHead)) return of.small;
        if (frame.length != whole.size_bytes()) break;
        return std::as_writable_bytes(whole);
      }
      case kRoundRows:
        if (of.gave == 0 || frame.length != 0) break;
        return {};
      case kRows: {
        if (!of.looks_up || of.looks || frame.correlation != of.ticket) break;
        const std::span<std::byte> rows = rows_->place(server);
        if (frame.length != rows.size()) break;
        return rows;
      }
      case kModeWelcome:
        length = of.greeted && !of.welcomed ? sizeof(ModeWelcome) : 0;
        break;
      case kModeEnd:
        length = of.welcomed ? sizeof(ModeEnd) : 0;
        break;
      case kProbe:
        length = of.probes ? 1 : 0;
        break;
    }
    if (length == 0 || frame.length != length) {
      throw ConnectionError(ConnectionError::Reason::refused,
                            "a policy server has said something else than was asked");
    }
    return std::span(of.small).first(length);
  });
  if (!header) return false;
  of.heard = of.quiet = now();
  switch (header->kind) {
    case kGrant:
      of.ticket = header->correlation;
      of.fresh = header->length > sizeof(GrantHead);
      break;
    case kRoundRows:
      --of.gave;
      break;
    case kRows:
      of.looks_up = false;
      break;
    case kModeEnd:
      of.left = true;
      break;
    case kProbe:
      of.probes = false;
      break;
    default: {
      ModeWelcome said;
      std::memcpy(&said, of.small.data(), sizeof said);
      const std::string name = "policy server " + std::to_string(server);
      if (said.dimension != shards_.size(server)) {
        throw Error(name + " has " + std::to_string(said.dimension) +
                    " parameters, and is to have " + std::to_string(shards_.size(server)) +
                    "; give all the same model and shards");
      }
      if (of.boot != 0 && said.boot != of.boot) {
        throw Error(name +
                    " was started again, and knows nothing of this run any more; start the run "
                    "again");
      }
      of.boot = said.boot;
      of.welcomed = true;
    }
  }
  return true;
}

void RemoteParts::wait_from(double time) {
  looked_ = time;
  for (Part& of : parts_) of.heard = of.quiet = time;
}

bool RemoteParts::hung(double time, double patience) {
  const double before = std::exchange(looked_, time);
  for (std::size_t s = 1; s < servers(); ++s) {
    Part& of = part(s);
    Connection* const connection = talk_.connection(s);
    const std::uint64_t bytes = connection ? connection->sent() + connection->received() : 0;
    if (std::exchange(of.bytes, bytes) != bytes && of.welcomed) of.heard = of.quiet = time;
    if (!known_) {  // which is not this one's fault, unlike what was before
      of.heard = std::min(time, of.heard + (time - before));
      of.quiet = time;
    }
    if (time - of.heard > 2 * patience) {
      throw Error("policy server " + std::to_string(s) +
                  " has said nothing for as long as it is waited for, or lets this worker in no "
                  "more; see what became of it, or be more patient");
    }
    if (!connection || !known_) continue;
    if (time - of.quiet > patience) return true;
    const bool asks = of.welcomed && !of.probes && time - of.quiet > patience / 4;
    if (asks && !talk_.saying(s)) {  // what is stuck turn() sends, and hears of its end
      const std::span<const std::byte> probe(&kPartProbe, 1);
      of.probes = true;
      talk_.say(s, {.kind = kProbe}, {&probe, 1});
    }
  }
  return false;
}

}  // namespace leashed
