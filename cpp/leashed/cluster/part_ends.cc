#include "leashed/cluster/part_ends.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "leashed/base/error.h"
#include "leashed/cluster/messages.h"
#include "leashed/cluster/part_messages.h"

namespace leashed {
namespace {

void ask(Peer peer, std::uint64_t position, Post& post) {
  const ToldEnd end{position};
  post.send(peer, {.kind = kToldEnd}, std::as_bytes(std::span(&end, 1)), {}, nullptr);
}

}  // namespace

bool PartEnds::known(const ToldLog& log, Post& post) {
  asked_.resize(log.followers());
  ends_.resize(log.followers());
  bool all = true;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    Asked& of = asked_[i];
    const bool there = of.answered && of.position == log.position();
    all = all && there;
    const Peer peer = log.peer(i + 1);
    // (One that is yet to answer is asked again behind that: each question has one answer.)
    if (there || peer == 0 || (of.peer == peer && !of.answered)) continue;
    of = {peer, log.position(), false, {}};
    ask(peer, of.position, post);
  }
  return all;
}

std::size_t PartEnds::asked(Peer peer) const {
  const auto of = std::ranges::find(asked_, peer, &Asked::peer);
  if (of == asked_.end() || of->answered) throw Error("an end that was not asked for");
  return static_cast<std::size_t>(of - asked_.begin());
}

std::span<std::byte> PartEnds::place(Peer peer, std::size_t bytes) {
  Asked& of = asked_[asked(peer)];
  of.bytes.resize(bytes);
  return of.bytes;
}

void PartEnds::said(Peer peer) {
  const std::size_t i = asked(peer);
  Asked& of = asked_[i];
  ToldEnded said;
  const std::size_t size = of.bytes.size();
  if (size < sizeof said) throw Error("an end that is none");
  std::memcpy(&said, of.bytes.data(), sizeof said);
  const std::uint64_t most = size / sizeof(std::uint64_t);
  const std::uint64_t numbers = said.missed + said.digests;
  if (said.missed > most || said.digests > most ||
      size < sizeof said + numbers * sizeof(std::uint64_t) || size % sizeof(float) != 0) {
    throw Error("an end with other numbers than it counts");
  }
  if (said.position < of.position) {
    throw Error("an end of another line of the log than was asked for");
  }
  const std::byte* from = of.bytes.data() + sizeof said;
  const auto take = [&](auto& to, std::size_t count) {
    to.resize(count);
    if (count > 0) std::memcpy(to.data(), from, count * sizeof to[0]);
    from += count * sizeof to[0];
  };
  PartEnd& end = ends_[i];
  end.position = said.position;
  end.updates = said.updates;
  take(end.missed, said.missed);
  const bool ascends =
      std::ranges::adjacent_find(end.missed, std::greater_equal()) == end.missed.end();
  if (!ascends || (said.missed > 0 && end.missed.back() >= said.position)) {
    throw Error("an end without parts of pushes that the log has not");
  }
  take(end.digests, said.digests);
  take(end.theta, static_cast<std::size_t>(of.bytes.data() + size - from) / sizeof(float));
  // (It may have carried out more by then, and is asked again where the log goes on.)
  of.answered = true;
  of.position = said.position;
  of.bytes = {};
}

void PartEnds::let_go(const ToldLog& log, Post& post) const {
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    if (log.peer(i + 1) != 0) ask(log.peer(i + 1), ToldEnd::kNothing, post);
  }
}

}  // namespace leashed
