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

void Follower::hear(const LogLine& line) {
  const modes::Event& event = line.event;
  Seat& of = seat(event.node);
  queue_.push_back({event, line.at, of.life, line.note});
  ++heard_;
  if (line.note == LogLine::Note::none && event.kind == EventKind::leave) {
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
    hear(block.lines[i]);
  }
}

bool Follower::take(modes::Node node, std::uint64_t life, std::uint64_t ticket,
                    std::uint64_t examples, AlignedArray<float>& values, RowPush* rows) {
  Seat& of = seat(node);
  if (lost(of, life, ticket)) {
    if (life == of.carried_of) std::erase(of.without, ticket);
    return false;
  }
  make_room(node);
  of.there = true;
  of.summed = false;
  of.part_life = life;
  of.ticket = ticket;
  of.examples = examples;
  std::swap(of.values, values);
  if (rows) std::swap(of.rows, *rows);
  go_on();
  return true;
}

bool Follower::take_rows(modes::Node node, std::uint64_t life, std::uint64_t ticket,
                         RowPush& rows) {
  Seat& of = seat(node);
  if (lost(of, life, ticket)) return false;
  make_room(node);
  of.there = of.summed = true;
  of.part_life = life;
  of.ticket = ticket;
  of.examples = 0;
  std::swap(of.rows, rows);
  go_on();
  return true;
}

void Follower::make_room(modes::Node node) {
  const Seat& of = seat(node);
  if (of.there && of.summed) drop(node);
  if (of.there) throw Error("a part of a push while another one of the same worker is still there");
}

void Follower::bring_home(std::uint64_t line, AlignedArray<float> state) {
  if (line >= heard_) homes_[line] = std::move(state);
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
    return told.pushes() && told.event.node == node && is_of(of, told);
  });
  if (heard || !std::exchange(of.there, false)) return;
  if (rows_) rows_->release(of.rows.keys);
}

bool Follower::is_of(const Seat& seat, const Told& told) {
  return seat.there && seat.part_life == told.life && seat.ticket == told.event.ticket &&
         seat.summed == told.summed();
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
    if (next.pushes()) {
      const Seat& of = seats_[next.event.node];
      with_part = is_of(of, next);
      const bool comes = position() >= line_ && !lost(of, next.life, next.event.ticket);
      if (!with_part && !next.summed() && comes) return;
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
  const std::uint64_t line = position();
  const bool missed = told.pushes() && !told.summed() && !with_part;
  if (missed && missed_.size() < most_missed_) missed_.push_back(line);
  queue_.pop_front();
  if (told.note != LogLine::Note::none && !told.summed()) return carry_out_note(told, line);
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
  if (told.summed() && rows_ && !with_part) {
    throw Error(
        "a sum counts of whose rows this policy server has no gradients: a worker has voted for it "
        "before they had come; start the run again");
  }
  Payload payload{nullptr, event.lease.count};
  if (with_part) {
    of.there = false;
    payload = {told.summed() ? nullptr : &of.values, of.examples, rows_ ? &of.rows.keys : nullptr,
               rows_ ? &of.rows.gradients : nullptr};
  }
  payload.reduced = told.summed();
  if (const auto leased = server_.lease(event.node); !with_part || told.summed()) {
    if (leased && leased->lease.ticket == event.ticket) payload.examples = leased->lease.count;
  }
  server_.handle(event, &payload, told.at, sink_);
}

void Follower::carry_out_note(const Told& told, std::uint64_t line) {
  const modes::Event& event = told.event;
  if (told.note == LogLine::Note::lost) return server_.lose_reduced(event.ticket);
  if (told.note == LogLine::Note::granted) {
    const auto its = server_.lease(event.node);
    if (!its) throw Error("the first policy server has granted what nobody has leased here");
    ParameterVector::Pin latest = server_.holder().pull();
    const std::uint64_t t = latest.t();
    server_.pulled_again(event.node, t);
    grants_ = true;
    sink_.grant({event.node, its->lease, its->version, 0, 0, std::move(latest), t});
    grants_ = false;
    return;
  }
  const auto home = homes_.extract(line);
  if (!home || event.ticket > server_.reduced()) {
    throw Error(
        "the parameters have come home, and not this policy server's part of them; start the run "
        "again");
  }
  server_.come_home(home.mapped().data(), event.ticket);
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
  for (const Told& told : queue_) {
    const bool leaves = told.note == LogLine::Note::none && told.event.kind == EventKind::leave;
    lives[told.event.node] -= leaves;
  }
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
