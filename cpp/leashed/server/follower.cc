#include "leashed/server/follower.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "leashed/base/error.h"

namespace leashed {

using EventKind = modes::Event::Kind;

Follower::Seat& Follower::seat(modes::Node node) {
  if (node < seats_.size()) return seats_[node];
  throw Error("node " + std::to_string(node) + " is told of, and this server has room for " +
              std::to_string(seats_.size()) +
              "; give all servers of a run the same number of workers");
}

void Follower::hear(const modes::Event& event, Time at) {
  Seat& of = seat(event.node);
  queue_.push_back({event, at, of.life});
  ++heard_;
  if (event.kind == EventKind::leave) {
    of.over = std::max(of.over, ++of.life);
    if (of.part_life < of.over) drop(event.node);
  }
  go_on();
}

void Follower::hear(const ReadBlock& block) {
  if (block.first > heard_) {
    throw Error("the event log goes on at line " + std::to_string(block.first) + ", and only " +
                std::to_string(heard_) + " lines have been heard; ask for it from there on");
  }
  for (std::size_t i = heard_ - block.first; i < block.lines.size(); ++i) {
    hear(block.lines[i].event, block.lines[i].at);
  }
}

bool Follower::take(modes::Node node, std::uint64_t life, std::uint64_t ticket,
                    std::uint64_t examples, AlignedArray<float>& values, RowPush* rows) {
  Seat& of = seat(node);
  if (lost(of, life, ticket)) {
    if (life == of.carried_of) std::erase(of.without, ticket);
    return false;
  }
  if (of.there) throw Error("a part of a push while another one of the same worker is still there");
  of.there = true;
  of.part_life = life;
  of.ticket = ticket;
  of.examples = examples;
  std::swap(of.values, values);
  if (rows) std::swap(of.rows, *rows);
  go_on();
  return true;
}

void Follower::comes_from(modes::Node node, std::uint64_t life, std::uint64_t ticket) {
  Seat& of = seat(node);
  if (life < std::max(of.over, of.first_of)) return;
  of.first = life == of.first_of ? std::max(of.first, ticket) : ticket;
  of.first_of = life;
  go_on();
}

void Follower::comes_from_line(std::uint64_t line) {
  line_ = line;
  go_on();
}

std::pair<std::uint64_t, std::uint64_t> Follower::there() const {
  std::pair<std::uint64_t, std::uint64_t> found;
  for (const Seat& of : seats_) {
    found.first += of.there;
    found.second += of.there ? of.examples : 0;
  }
  return found;
}

void Follower::lose(modes::Node node, std::uint64_t life, std::uint64_t ticket) {
  Seat& of = seat(node);
  if (life < of.over || !reach(of, life)) return;
  of.without.push_back(ticket);
  go_on();
}

bool Follower::reach(Seat& seat, std::uint64_t life) {
  if (life > seat.carried_of) {
    seat.carried_of = life;
    seat.carried = 0;
    seat.without.clear();
  }
  return life == seat.carried_of;
}

void Follower::drop(modes::Node node) {
  Seat& of = seat(node);
  const bool heard = std::ranges::any_of(queue_, [&](const Told& told) {
    return told.event.kind == EventKind::push && told.event.node == node &&
           told.life == of.part_life && told.event.ticket == of.ticket;
  });
  if (heard || !std::exchange(of.there, false)) return;
  if (rows_) rows_->release(of.rows.keys);
}

bool Follower::lost(const Seat& seat, std::uint64_t life, std::uint64_t ticket) const {
  if (life < seat.over || (life == seat.first_of && ticket < seat.first)) return true;
  return life == seat.carried_of &&
         (ticket == seat.carried || std::ranges::count(seat.without, ticket) > 0);
}

void Follower::go_on() {
  while (!queue_.empty()) {
    const Told& next = queue_.front();
    bool with_part = false;
    if (next.event.kind == EventKind::push) {
      const Seat& of = seats_[next.event.node];
      with_part = of.there && of.part_life == next.life && of.ticket == next.event.ticket;
      const bool comes = position() >= line_ && !lost(of, next.life, next.event.ticket);
      if (!with_part && comes) return;
    }
    carry_out(with_part);
  }
}

void Follower::give_up() {
  if (queue_.empty()) return;
  carry_out(false);
  go_on();
}

void Follower::carry_out(bool with_part) {
  const Told told = queue_.front();
  const modes::Event& event = told.event;
  queue_.pop_front();
  if (event.kind == EventKind::command) {
    try {
      server_.handle(event, nullptr, told.at, sink_);
    } catch (const Error&) {  // the leader has told whoever gave it
    }
    return;
  }
  if (event.kind != EventKind::push) return server_.handle(event, nullptr, told.at, sink_);
  Seat& of = seats_[event.node];
  if (reach(of, told.life)) {
    of.carried = event.ticket;
    if (!with_part && std::ranges::count(of.without, event.ticket) == 0) {
      of.without.push_back(event.ticket);
    }
  }
  Payload payload{nullptr, event.lease.count};
  if (with_part) {
    of.there = false;
    payload = {&of.values, of.examples, rows_ ? &of.rows.keys : nullptr,
               rows_ ? &of.rows.gradients : nullptr};
  } else if (const auto leased = server_.lease(event.node)) {
    if (leased->lease.ticket == event.ticket) payload.examples = leased->lease.count;
  }
  server_.handle(event, &payload, told.at, sink_);
}

void Follower::visit(Archive& archive) {
  std::uint64_t line = position();
  std::vector<std::uint64_t> lives, over, carried_of, carried;
  std::vector<Without> without;
  for (const Seat& of : seats_) {
    for (const std::uint64_t ticket : of.without) without.push_back({lives.size(), ticket});
    lives.push_back(of.life);
    over.push_back(of.over);
    carried_of.push_back(of.carried_of);
    carried.push_back(of.carried);
  }
  for (const Told& told : queue_) lives[told.event.node] -= told.event.kind == EventKind::leave;
  archive(line);
  archive.of_each(lives);
  archive.of_each(over);
  archive.of_each(carried_of);
  archive.of_each(carried);
  archive(without);
  if (!archive.reads()) return;
  archive.require(queue_.empty() && heard_ == 0);  // it is a new one
  heard_ = line;
  for (std::size_t node = 0; node < seats_.size(); ++node) {
    archive.require(lives[node] <= over[node] && over[node] <= ~std::uint64_t{0} - 1);
    seats_[node].life = lives[node];
    seats_[node].over = over[node];
    seats_[node].carried_of = carried_of[node];
    seats_[node].carried = carried[node];
  }
  for (const Without& one : without) {
    archive.require(one.node < seats_.size());
    seats_[one.node].without.push_back(one.ticket);
  }
}

}  // namespace leashed
