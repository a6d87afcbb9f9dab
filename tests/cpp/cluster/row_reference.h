// Rows of Adagrad and what a server knows of its clients, as plainly as can be.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cluster/row_frames.h"
#include "leashed/cluster/row_messages.h"
#include "leashed/table/table.h"

namespace leashed {

class PlainRows {
 public:
  static constexpr double kRate = 0.1;

  explicit PlainRows(const TableSettings& settings)
      : dim(settings.dim), initial_(settings.initial, settings.seed, settings.number) {}

  struct Row {
    std::vector<double> theta, squares;
    std::uint64_t updates = 0;
  };
  // What the id has, or would begin with.
  Row peek(std::uint64_t id) const {
    if (const auto found = rows.find(id); found != rows.end()) return found->second;
    std::vector<float> begins(dim);
    initial_(id, begins.data(), dim);
    return {{begins.begin(), begins.end()}, std::vector<double>(dim), 0};
  }
  Row& admit(std::uint64_t id) { return rows.try_emplace(id, peek(id)).first->second; }
  void update(std::uint64_t id, const float* gradient) {
    Row& row = admit(id);
    for (std::size_t j = 0; j < dim; ++j) {
      row.squares[j] += double{gradient[j]} * gradient[j];
      row.theta[j] -= kRate * gradient[j] / (std::sqrt(row.squares[j]) + 1e-10);
    }
    ++row.updates;
  }

  const std::size_t dim;
  std::map<std::uint64_t, Row> rows;  // that were admitted

 private:
  const Initial initial_;
};

// A server that everybody talks to by calls.
struct PlainServer {
  struct Ticket {
    Ids ids;
    Ids updates;  // of the rows, when they were looked up
    std::uint64_t round = 0;
    bool expired = false;
  };
  struct Client {
    std::uint64_t life = 0, applied = 0;
    InRows in_rows = {};
    std::map<std::uint64_t, Ticket> tickets;
    std::map<std::uint64_t, Settled> told;
    std::map<std::uint64_t, Settling> outcomes;  // of this life, whatever server it was

    std::uint64_t last_outcomes() const {
      std::uint64_t bits = 0;
      for (std::uint64_t k = 0; k < kTickets && k < applied; ++k) {
        const auto found = outcomes.find(applied - k);
        if (found != outcomes.end()) bits |= static_cast<std::uint64_t>(found->second) << 2 * k;
      }
      return bits;
    }
  };

  void hello(std::uint64_t number, std::uint64_t life) {
    const auto [client, fresh] = clients.try_emplace(number);
    if (fresh || client->second.life != life) client->second = {life, 0, {}, {}, {}, {}};
  }
  void look_up(std::uint64_t number, std::uint64_t ticket, const Ids& ids) {
    auto& tickets = clients.at(number).tickets;
    if (!tickets.contains(ticket) && tickets.size() == kTickets) {
      expired += tickets.begin()->second.expired ? 0 : 1;
      tickets.erase(tickets.begin());
    }
    Ticket& taken = tickets[ticket] = {ids, Ids(ids.size()), round, false};
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (const auto id : ids[t]) taken.updates[t].push_back(tables[t].admit(id).updates);
    }
    ++lookups;
  }
  // Nothing where it is none that may come.
  std::optional<Settled> push(std::uint64_t of, std::uint64_t ticket, std::uint64_t number,
                              const std::vector<float>& gradients) {
    Client& client = clients.at(of);
    if (number <= client.applied) {
      ++repeated;
      Settled settled = client.told[number];
      settled.applied = client.applied;
      return settled;
    }
    const auto found = client.tickets.find(ticket);
    if (found == client.tickets.end()) return std::nullopt;
    const Ticket& taken = found->second;
    Settled settled{number};
    bool finite = true;
    for (const float g : gradients) finite = finite && std::isfinite(g);
    if (taken.expired) {
      settled.settling = Settling::expired;
    } else if (!finite) {
      settled.settling = Settling::not_finite;
      ++not_finite;
    } else {
      const float* gradient = gradients.data();
      for (std::size_t t = 0; t < tables.size(); ++t) {
        for (std::size_t i = 0; i < taken.ids[t].size(); ++i, gradient += tables[t].dim) {
          const PlainRows::Row& row = tables[t].admit(taken.ids[t][i]);
          settled.publication.apply(static_cast<std::uint32_t>(row.updates - taken.updates[t][i]));
          tables[t].update(taken.ids[t][i], gradient);
        }
      }
      ++pushes;
      ++client.in_rows.pushes;
      client.in_rows.examples += examples_of(number);
    }
    client.tickets.erase(found);
    client.applied = number;
    client.outcomes[number] = settled.settling;
    settled.in_rows = client.in_rows;
    return client.told[number] = settled;
  }
  void drop(std::uint64_t number, std::uint64_t ticket) {
    clients.at(number).tickets.erase(ticket);
  }
  void expire() {
    for (auto& [_, client] : clients) {
      for (auto& [_, ticket] : client.tickets) {
        if (ticket.expired || ticket.round == round) continue;
        ticket.expired = true;
        ++expired;
      }
    }
    ++round;
  }
  // Started again, with the rows and numbers of this moment.
  void restart() {
    for (auto& [_, client] : clients) {
      client.tickets.clear();
      client.told.clear();
    }
    round = lookups = not_finite = expired = repeated = 0;
  }

  std::vector<PlainRows> tables;
  std::map<std::uint64_t, Client> clients;
  std::uint64_t round = 0, lookups = 0, pushes = 0, not_finite = 0, expired = 0, repeated = 0;
};

}  // namespace leashed
