#include "leashed/cluster/told_log.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/cluster/messages.h"

namespace leashed {

namespace {

// Lines that all have heard, and one that is started again might ask for, at most: some 100 MB.
constexpr std::uint64_t kMostKept = std::uint64_t{1} << 20;

}  // namespace

void ToldLog::hello(Peer peer, std::uint64_t server, const ToldHello& said, std::uint64_t boot,
                    Post& post) {
  if (server == 0 || server > followers_.size()) throw Error("a policy server that is none");
  Follower& of = followers_[server - 1];
  if (of.boot != 0 && of.boot != said.boot) {
    throw Error("policy server " + std::to_string(server) +
                " was started again, and knows nothing of this run any more; start the run again");
  }
  const bool again = said.again != 0;
  if ((said.heard < of.heard && !again) || said.heard > log_.next()) {
    throw Error("policy server " + std::to_string(server) + " has heard another log");
  }
  if (of.peer != 0) post.refuse(of.peer);
  log_.from(said.heard);  // throws where that is forgotten
  of = {peer, said.boot, said.heard, of.kept, false};
  const ToldAt at{log_.next(), boot};
  post.send(peer, {.kind = kToldAt}, std::as_bytes(std::span(&at, 1)), {}, nullptr);
}

bool ToldLog::ahead(std::uint64_t server, const ToldHello& said) const {
  if (server == 0 || server > followers_.size()) return false;
  return followers_[server - 1].boot == 0 && said.heard > ours_;
}

void ToldLog::heard(Peer peer, const ToldAt& said) {
  const auto of = std::ranges::find(followers_, peer, &Follower::peer);
  if (of == followers_.end() || said.boot != of->boot || said.position < of->heard ||
      said.position > log_.next()) {
    throw Error("somebody has heard another log");
  }
  of->heard = said.position;
  of->kept = std::min(said.kept, said.position);
  of->told = false;
  const std::uint64_t heard = std::ranges::min(followers_, {}, &Follower::heard).heard;
  const std::uint64_t kept = std::ranges::min(followers_, {}, &Follower::kept).kept;
  while (!homes_.empty() && homes_.front().line < heard) homes_.pop_front();
  log_.forget(std::min(heard, std::max(kept, log_.next() - std::min(log_.next(), kMostKept))));
}

void ToldLog::append_home(const LogLine& line, std::vector<Part> parts) {
  homes_.push_back({log_.append(line), std::move(parts)});
  log_.close();
}

std::uint64_t ToldLog::server_of(Peer peer) const {
  const auto of = std::ranges::find(followers_, peer, &Follower::peer);
  return of == followers_.end() ? 0 : static_cast<std::uint64_t>(of - followers_.begin()) + 1;
}

void ToldLog::gone(Peer peer) {
  const auto of = std::ranges::find(followers_, peer, &Follower::peer);
  if (of != followers_.end()) of->peer = 0;
}

bool ToldLog::all_heard() const {
  return std::ranges::all_of(followers_,
                             [this](const Follower& of) { return of.heard == log_.next(); });
}

void ToldLog::send(Post& post) {
  for (Follower& of : followers_) {
    if (of.peer == 0 || of.told || of.heard == log_.next()) continue;
    log_.close();
    const EventLog::Block block = log_.from(of.heard).front();
    const std::span<const std::byte> bytes(*block);
    of.told = true;
    BlockHead head;
    std::memcpy(&head, block->data(), sizeof head);
    const std::uint64_t last = head.first + head.lines - 1;
    const auto home = std::ranges::find(homes_, last, &Home::line);
    if (home != homes_.end()) {
      const Part& part = home->parts[static_cast<std::size_t>(&of - followers_.data())];
      const auto state = std::as_bytes(std::span<const float>(part->data(), part->size()));
      post.send(of.peer, {.kind = kRoundState, .correlation = last}, {}, {&state, 1}, part);
    }
    post.send(of.peer, {.kind = kTold}, {}, {&bytes, 1}, block);
  }
}

}  // namespace leashed
