// A server of a mode that follows another: it carries out what the leader's log says (event_log.h),
// in its order and by its times, each push as soon as this server's part of it is there. So it
// decides as the leader does, if later. docs/transport.md has the rules, models/told.pml the proof.
//
// A life of a node ends with the node's leave in the log, and the next one's number is one more;
// the first is 0. A part is known by node, life and ticket. Where it will not come its push counts
// here as one that was lost on the way: its life is over, its sender has said that none before
// another ticket comes any more, or whoever drives this server says so. A leave is heeded when it
// is heard, however much of the log is still before it. A part is late when its push has been
// carried out, whatever its ticket: a batch that has come back has had its ticket since then, and
// may be granted behind later ones.
//
// Where workers sum among themselves (cluster/led_rounds.h), a push that was summed is one of rows
// alone, and is not waited for: their gradients are here before their sum counts. Its updates are
// elsewhere until the log says that they came home: this server's part of
// that is here before the line is heard.
//
// It knows no threads, clocks or sockets: one call comes after the other. What throws of what is
// carried out leaves it of no more use.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/server/event_log.h"
#include "leashed/server/parameter_server.h"
#include "leashed/server/row_holder.h"

namespace leashed {

class Follower {
 public:
  // Of a mode of nodes below `nodes`. The server's machine is the leader's, from the log's
  // beginning on; rows: of the tables that its gradients are of too. What is given must stay.
  Follower(ParameterServer& server, Sink& sink, std::size_t nodes, RowHolder* rows = nullptr)
      : server_(server), sink_(sink), rows_(rows), seats_(nodes) {}

  // The log's next line. Throws Error where its node cannot be. A command that the machine does not
  // know is passed over, as the leader's machine has passed it over.
  void hear(const LogLine& line);
  void hear(const modes::Event& event, Time at) { hear({event, at}); }
  // The log's next lines, of which some may have been heard before. Throws Error where there are
  // lines between them and what was heard.
  void hear(const ReadBlock& block);

  // A node's part of a push: its memory is taken, and other memory given. False: it comes too late,
  // and stays the caller's. rows: where there are tables. Throws Error where the node cannot be,
  // and where another part of its is still there: nobody sends two.
  bool take(modes::Node node, std::uint64_t life, std::uint64_t ticket, std::uint64_t examples,
            AlignedArray<float>& values, RowPush* rows = nullptr);
  // The same of one that is summed elsewhere, in place of such a one that is still there: of the
  // same lease, or of one that the node has no more.
  bool take_rows(modes::Node node, std::uint64_t life, std::uint64_t ticket, RowPush& rows);
  // This server's part, θ and the rule's state, of what has come home by that line, or will have.
  void bring_home(std::uint64_t line, AlignedArray<float> state);
  // Whether it carries out that a node is granted what it has leased, of which it was granted the
  // lease alone before.
  bool grants() const { return grants_; }
  // Of that life no part comes any more that is of a ticket before this one, and not there.
  void comes_from(modes::Node node, std::uint64_t life, std::uint64_t ticket);
  // The part of that ticket alone does not come.
  void lose(modes::Node node, std::uint64_t life, std::uint64_t ticket);
  // Of pushes before that line of the log no part comes any more that is not there: whoever had
  // sent one was connected to the process before this one.
  void comes_from_line(std::uint64_t line);
  // The part that it has of the node is let go, but where a push that was heard is for it.
  void drop(modes::Node node);

  // The push that is waited for.
  struct Told {
    modes::Event event;
    Time at;
    std::uint64_t life;
    LogLine::Note note = LogLine::Note::none;

    bool summed() const { return note == LogLine::Note::summed; }
    bool pushes() const {
      return event.kind == modes::Event::Kind::push && (note == LogLine::Note::none || summed());
    }
  };
  // Null: all that was heard is carried out.
  const Told* waits() const { return queue_.empty() ? nullptr : &queue_.front(); }
  // Its part does not come.
  void give_up();

  // The node's life, as far as the log was heard.
  std::uint64_t life(modes::Node node) const { return seats_.at(node).life; }
  // The first line of the log that is not carried out, or not heard.
  std::uint64_t position() const { return heard_ - queue_.size(); }
  std::uint64_t heard() const { return heard_; }
  // From now on lines of pushes are noted whose part was not there, so many at most.
  void note_missed(std::size_t most) { most_missed_ = most; }
  const std::vector<std::uint64_t>& missed() const { return missed_; }
  // Parts that are there, and are not carried out, and examples of these.
  std::pair<std::uint64_t, std::uint64_t> there() const;

  // Its position, who has left, and which parts are late by now: of one moment with the server's
  // state. Parts and lines that are
  // not carried out are no part of it: who goes on from there is told these again.
  void visit(Archive& archive);

 private:
  struct Seat {
    std::uint64_t life = 0;  // of the lines that come next
    std::uint64_t over = 0;  // lives before this one are over
    // Of the life `first_of`, parts of tickets before `first` do not come.
    std::uint64_t first_of = 0, first = 0;
    // Of the life `carried_of`: the ticket that was carried out last, and those whose parts are
    // not waited for, and have not come.
    std::uint64_t carried_of = 0, carried = 0;
    std::vector<std::uint64_t> without;
    // The part.
    bool there = false;
    bool summed = false;  // it is of rows alone
    std::uint64_t part_life = 0, ticket = 0, examples = 0;
    AlignedArray<float> values;
    RowPush rows;
  };

  // Of snapshots.
  struct Without {
    std::uint64_t node = 0, ticket = 0;

    void visit(Archive& archive) { archive(node, ticket); }
  };

  Seat& seat(modes::Node node);
  // Whether the part that the seat has is that push's.
  static bool is_of(const Seat& seat, const Told& told);
  // Where another part goes. Throws Error where one is there that is not given in place of.
  void make_room(modes::Node node);
  // Whether the life is that of what is known by ticket, or goes before it.
  static bool reach(Seat& seat, std::uint64_t life);
  bool lost(const Seat& seat, std::uint64_t life, std::uint64_t ticket) const;
  void go_on();
  void carry_out(bool with_part);
  void carry_out_note(const Told& told, std::uint64_t line);

  ParameterServer& server_;
  Sink& sink_;
  RowHolder* const rows_;
  std::vector<Seat> seats_;  // by node
  std::deque<Told> queue_;
  std::map<std::uint64_t, AlignedArray<float>> homes_;  // by line
  bool grants_ = false;
  std::uint64_t heard_ = 0;
  std::uint64_t line_ = 0;  // of pushes before it no part comes
  std::size_t most_missed_ = 0;
  std::vector<std::uint64_t> missed_;
};

}  // namespace leashed
