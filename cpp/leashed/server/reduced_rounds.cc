#include "leashed/server/reduced_rounds.h"

#include <algorithm>
#include <string>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {

RoundLeader::Member* RoundLeader::find(Life life) {
  const auto found = std::ranges::find(members_, life, &Member::life);
  return found == members_.end() ? nullptr : &*found;
}

void RoundLeader::begin(std::uint64_t version) {
  version_ = at_server_ = version;
  running_ = true;
  next();
}

void RoundLeader::come(Life life) {
  if (!find(life)) members_.push_back({.life = life});
}

void RoundLeader::gone(Life life) {
  const Member* const found = find(life);
  if (!found) return;
  const bool in_round = found->in_round;
  if (found->ticket) host_.give_back(*found->ticket);
  members_.erase(members_.begin() + (found - members_.data()));
  if (!running_ || !in_round || (asked_ && asked_ != life)) return;
  asked_.reset();
  next();
}

// No sum is under way that counts.
void RoundLeader::next() {
  const bool held = std::ranges::any_of(members_, &Member::holds);
  if (!held && at_server_ != version_) return end(version_ - at_server_);
  bool out = false;
  for (Member& member : members_) {
    if (!member.ticket && !wanted_) member.ticket = host_.lend(member.life);
    out = out || member.ticket;
  }
  if (out) return say();
  if (at_server_ == version_) return end(0);
  ask_holder();
}

void RoundLeader::say() {
  ReducedRound round{.epoch = ++epoch_, .version = version_};
  std::vector<const Member*> giving;
  for (Member& member : members_) {
    member.in_round = true;
    member.vote.reset();
    if (member.ticket) giving.push_back(&member);
    if (member.holds) round.holders.push_back(member.life);
  }
  std::ranges::sort(giving, {}, [](const Member* member) { return member->ticket->batch; });
  for (const Member* const member : giving) round.members.push_back(member->life);
  for (const Member& member : members_) {
    if (!member.ticket) round.members.push_back(member.life);
  }
  round.giving = giving.size();
  for (const Member& member : members_) {
    round.ticket = member.ticket;
    host_.say(member.life, round);
  }
}

void RoundLeader::ask_holder() {
  asked_ = std::ranges::find_if(members_, &Member::holds)->life;
  host_.want(*asked_, version_);
}

void RoundLeader::vote(Life life, std::uint64_t epoch, std::uint32_t checksum) {
  Member* const member = find(life);
  if (!running_ || asked_ || epoch != epoch_ || !member || !member->in_round) return;
  member->vote = checksum;
  const auto still = [](const Member& each) { return each.in_round && !each.vote; };
  if (std::ranges::none_of(members_, still)) commit();
}

void RoundLeader::again(Life life, std::uint64_t epoch) {
  const Member* const member = find(life);
  if (running_ && !asked_ && epoch == epoch_ && member && member->in_round) next();
}

bool RoundLeader::left(Life life, std::uint64_t version) {
  const Member* const member = find(life);
  const bool in_rounds = running_ && member && member->in_round;
  if (!in_rounds || version <= at_server_ || version > version_) return false;
  at_server_ = version;
  return true;
}

void RoundLeader::commit() {
  const auto first = std::ranges::find_if(members_, &Member::in_round);
  for (const Member& member : members_) {
    if (!member.in_round || member.vote == first->vote) continue;
    const std::string names =
        "member " + std::to_string(member.life) + " than member " + std::to_string(first->life);
    for (Member& each : members_) each.vote.reset();
    throw Error("the sum of epoch " + std::to_string(epoch_) + " is another one at " + names +
                "; nothing of it is applied");
  }
  std::vector<RoundTicket> tickets;
  for (Member& member : members_) {
    if (member.in_round && member.ticket) {
      tickets.push_back(*std::exchange(member.ticket, std::nullopt));
    }
    member.holds = member.in_round;
  }
  std::ranges::sort(tickets, {}, &RoundTicket::batch);
  ++version_;
  host_.update(tickets);
  next();
}

void RoundLeader::state(Life life, std::uint64_t version) {
  if (!running_ || asked_ != life) return;
  if (version != version_) {
    throw Error("member " + std::to_string(life) + " has sent its replica of version " +
                std::to_string(version) + ", and the log is at " + std::to_string(version_));
  }
  at_server_ = version;
  end(0);
}

void RoundLeader::end(std::uint64_t lost) {
  for (Member& member : members_) {
    if (member.ticket) host_.give_back(*member.ticket);
    member = {.life = member.life};
  }
  version_ = at_server_;
  asked_.reset();
  running_ = false;
  host_.came_home(lost);
}

// Whether the sum that it has voted for counts: then that is its version.
bool RoundMember::counts(std::uint64_t version) {
  if (!has_ || !voted_ || version != version_ + 1) return false;
  version_ = version;
  return true;
}

bool RoundMember::hear(const ReducedRound& round) {
  if (in_round_ && round.epoch <= round_.epoch) {
    throw Error("a round of epoch " + std::to_string(round.epoch) + " has come behind " +
                std::to_string(round_.epoch));
  }
  const bool applies = counts(round.version);
  has_ = has_ && version_ == round.version;
  if (!in_round_ || !has_ || round.ticket != round_.ticket) computed_ = rows_ = false;
  round_ = round;
  in_round_ = true;
  given_ = voted_ = false;
  sum_.reset();
  return applies;
}

void RoundMember::took(std::uint64_t epoch) {
  if (!to_take() || epoch != round_.epoch) return;
  has_ = true;
  version_ = round_.version;
}

void RoundMember::computed(const RoundTicket& ticket) {
  if (in_round_ && round_.ticket == ticket) computed_ = true;
}

void RoundMember::rows_are_there(const RoundTicket& ticket) {
  if (in_round_ && round_.ticket == ticket) rows_ = true;
}

void RoundMember::summed(std::uint64_t epoch, std::uint32_t checksum) {
  if (in_round_ && given_ && epoch == round_.epoch) sum_ = checksum;
}

std::optional<RoundMember::Vote> RoundMember::vote() {
  if (!in_round_ || voted_ || !sum_ || (round_.ticket && !rows_)) return std::nullopt;
  voted_ = true;
  return Vote{round_.epoch, *sum_};
}

bool RoundMember::send_home(std::uint64_t version) {
  const bool applies = counts(version);
  in_round_ = voted_ = false;
  return applies;
}

void RoundMember::leave() { in_round_ = has_ = voted_ = computed_ = rows_ = given_ = false; }

}  // namespace leashed
