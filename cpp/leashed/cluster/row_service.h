// What an embedding server answers (cluster/row_messages.h): it holds rows of tables, which any
// number of trainers look up and update, each push once.
//
// What a client has looked up is held under its ticket, also while it has no connection, since it
// may come back and push. It is let go when the client comes with another life, when it is held
// longer than whoever drives the service allows (expire), and when it is the oldest of more than
// kTickets, being one whose drop was lost with a connection. So one that hangs, or never comes
// back, holds rows and their memory for no longer; what is left of it are the numbers of its last
// pushes.
//
// A server with several loops has a service for each, all of the same tables, whose rows they read
// and update without a lock. Each has clients of its own: a connection goes to the one whose client
// it is, by its hello.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/cluster/row_messages.h"
#include "leashed/cluster/served_pools.h"
#include "leashed/net/service.h"
#include "leashed/server/row_holder.h"
#include "leashed/table/row_placement.h"

namespace leashed {

class RowService final : public Service {
 public:
  // Which of a server's loops it is of.
  struct Loop {
    std::size_t number = 0, count = 1;
    // That all of them have made. Relaxed: each push gets one, whichever it is.
    std::shared_ptr<std::atomic<std::uint64_t>> steps =
        std::make_shared<std::atomic<std::uint64_t>>(0);
  };
  // The tables of which server `mine` has rows, and their numbers among all of the placement.
  // Throws Error where these are others, or a table has no seat left.
  RowService(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> numbers,
             RowPlacement placement, std::size_t mine, std::uint64_t boot)
      : RowService(std::move(tables), std::move(numbers), std::move(placement), mine, boot,
                   Loop{}) {}
  RowService(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> numbers,
             RowPlacement placement, std::size_t mine, std::uint64_t boot, Loop loop);
  // Of so many loops the one that a client is of: those of a trainer, and the first ones of all
  // trainers, are spread over all.
  static std::size_t loop_of(std::uint64_t client, std::size_t loops) {
    return (client % kClientsOfATrainer + client / kClientsOfATrainer) % loops;
  }

  void come(Peer peer) override;
  std::span<std::byte> place(Peer peer, const FrameHeader& header) override;
  std::optional<std::size_t> elsewhere(Peer peer, const FrameHeader& header) override;
  void frame(Peer peer, const FrameHeader& header, Outbox& outbox) override;
  void gone(Peer peer) noexcept override;

  // What follows is for the thread that drives it, or while that holds.

  // What the rows have of a client's pushes.
  struct Applied {
    std::uint64_t client, life, number;
    Outcomes outcomes = {};  // of that push and those before it
    InRows in_rows = {};
  };
  std::vector<Applied> applied() const;
  // Before any client: the tables had these when this was made, and so many pushes, which are among
  // their steps. Throws Error where there is a client, or one is there twice.
  void restore(std::span<const Applied> applied, std::uint64_t pushes);
  // Lets go of tickets that were there already when this was called last: who calls it every so
  // many seconds lets nobody hold rows for more than twice as long.
  void expire();

  // For any thread.
  struct Counters {
    std::uint64_t lookups = 0;     // of batches that train
    std::uint64_t reads = 0;       // of those that do not
    std::uint64_t looked_up = 0;   // rows of both
    std::uint64_t pooled = 0;      // floats of pools that were made of such rows
    std::uint64_t pushes = 0;      // that are applied, with those of restore()
    std::uint64_t apart = 0;       // of these, since then, that were a step of one table alone
    std::uint64_t pushed = 0;      // rows of them, since then
    std::uint64_t not_finite = 0;  // pushes left out for gradients that are not
    std::uint64_t expired = 0;     // tickets that were held too long, or were too many
    std::uint64_t repeated = 0;    // pushes that came again, being applied already
    std::uint64_t clients = 0;     // that have come
    // Of memory for what comes and is answered, and for the pools of what is held.
    std::uint64_t payload_bytes = 0;

    void add(const Counters& other);
  };
  Counters counters() const;

 private:
  struct Ticket {
    std::uint64_t number = 0;  // 0: free
    std::uint64_t round = 0;   // of expire(), when it was given
    bool expired = false;
    std::uint32_t trains = 1;  // as of LookupHead
    RowKeys keys;
    std::vector<std::uint32_t> wanted;  // by table: of these rows, whose gradients come as they are
    ServedPools pools;
  };
  struct Client {
    std::uint64_t life = 0, applied = 0;
    Outcomes outcomes;
    InRows in_rows;
    Peer peer = 0;                  // by which it is connected; 0: it is not
    std::uint64_t most_floats = 0;  // of a lookup so far
    std::vector<Ticket> tickets;
    std::vector<Settled> told;  // of the last pushes, by number % kTickets; or empty
  };
  struct Link {
    Client* client = nullptr;  // null: it has not said hello, or another has its place
    AlignedArray<std::byte> payload, reply;
    Settled settled{};
    RowWelcome welcome{};
  };

  void hello(Peer peer, Link& link, std::size_t length, Outbox& outbox);
  void look_up(Link& link, const FrameHeader& header, Outbox& outbox);
  void push(Link& link, const FrameHeader& header, Outbox& outbox);
  // Finds the gradients of a ticket's rows in so many floats that were pushed; whether they are
  // finite. Throws Error where they are not so many.
  bool gradients_of(Ticket& ticket, const float* pushed, std::size_t floats);
  void drop(Link& link, const FrameHeader& header);
  // How long a frame of a kind may be, as things stand.
  static std::uint64_t most(const Link& link, std::uint16_t kind);
  static Ticket* find(Client& client, std::uint64_t number);
  // One that holds nothing.
  Ticket& ticket_for(Client& client, std::uint64_t number);
  void let_go(Ticket& ticket);
  // At least so many bytes; counted.
  void make_room(AlignedArray<std::byte>& memory, std::size_t bytes);
  float* room_for_pooled(std::size_t floats);

  const std::vector<std::size_t> numbers_;
  const RowPlacement placement_;
  const std::size_t mine_;
  const std::uint64_t boot_;
  const Loop loop_;
  std::uint64_t digest_ = 0;
  RowHolder holder_;
  std::unordered_map<std::uint64_t, Client> clients_;
  std::unordered_map<Peer, Link> links_;
  std::uint64_t round_ = 0;        // of expire()
  std::vector<std::size_t> dims_;  // by table
  // Of the frame that is answered, by table.
  std::vector<std::span<const std::uint64_t>> ids_;
  std::vector<float*> values_;
  std::vector<const float*> gradients_;
  AlignedArray<float> pooled_rows_;  // or their gradients; till a connection goes
  ServedPools read_pools_;           // of a lookup that only reads
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> lookups_{0}, reads_{0}, looked_up_{0}, pooled_{0}, pushes_{0},
      apart_{0}, pushed_{0}, not_finite_{0}, expired_{0}, repeated_{0}, clients_count_{0},
      bytes_{0};
};

}  // namespace leashed
