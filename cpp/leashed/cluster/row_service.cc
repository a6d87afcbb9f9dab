#include "leashed/cluster/row_service.h"

#include <algorithm>
#include <cstring>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/row_memory.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr std::size_t kClients = std::size_t{1} << 16;

template <class T>
T head_of(const AlignedArray<std::byte>& payload, std::size_t length) {
  if (length < sizeof(T)) throw Error("a frame without its head");
  T head;
  std::memcpy(&head, payload.data(), sizeof head);
  return head;
}

template <class T>
void answer(Outbox& outbox, std::uint16_t kind, std::uint64_t correlation, const T& what) {
  const auto part = std::as_bytes(std::span(&what, 1));
  const std::span<const std::byte> parts[] = {part};
  outbox.send({.kind = kind, .correlation = correlation}, parts);
}

// What pools come to hold while it is there, whether or not that ends well.
struct CountedPools {
  const ServedPools& pools;
  std::atomic<std::uint64_t>& bytes;
  const std::uint64_t before = pools.memory();

  ~CountedPools() { bytes.fetch_add(pools.memory() - before, kRelaxed); }
};

}  // namespace

RowService::RowService(std::vector<std::shared_ptr<Table>> tables, std::vector<std::size_t> numbers,
                       RowPlacement placement, std::size_t mine, std::uint64_t boot, Loop loop)
    : numbers_(std::move(numbers)),
      placement_(std::move(placement)),
      mine_(mine),
      boot_(boot),
      loop_(std::move(loop)),
      holder_(std::move(tables), {}),
      ids_(numbers_.size()),
      values_(numbers_.size()),
      gradients_(numbers_.size()) {
  std::vector<std::size_t> has;
  for (std::size_t t = 0; t < placement_.tables(); ++t) {
    if (placement_.has(t, mine)) has.push_back(t);
  }
  if (has != numbers_ || holder_.tables().size() != numbers_.size()) {
    throw Error("the tables must be those of which the placement gives rows to server " +
                std::to_string(mine) + ", in their order");
  }
  RowDigest digest;
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const TableSettings& settings = holder_.tables()[i]->settings();
    digest.add(numbers_[i],
               {settings.name, settings.dim, holder_.tables()[i]->grows() ? 0 : settings.rows},
               placement_.shards(numbers_[i], mine));
  }
  digest_ = digest.value();
  for (const auto& table : holder_.tables()) dims_.push_back(table->dim());
}

void RowService::make_room(AlignedArray<std::byte>& memory, std::size_t bytes) {
  if (memory.size() >= bytes) return;
  const std::size_t before = memory.size();
  memory = AlignedArray<std::byte>(bytes + bytes / 8);
  bytes_.fetch_add(memory.size() - before, kRelaxed);
}

float* RowService::room_for_pooled(std::size_t floats) {
  const std::size_t before = pooled_rows_.size();
  reach_floats(pooled_rows_, floats);
  bytes_.fetch_add((pooled_rows_.size() - before) * sizeof(float), kRelaxed);
  return pooled_rows_.data();
}

void RowService::come(Peer peer) { links_.try_emplace(peer); }

void RowService::gone(Peer peer) noexcept {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  const Link& link = found->second;
  std::uint64_t bytes = link.payload.size() + link.reply.size();
  if (link.client) {  // its tickets stay
    link.client->peer = 0;
    std::erase_if(link.client->tickets, [&bytes](const Ticket& one) {
      if (one.number == 0) bytes += one.pools.memory();
      return one.number == 0;
    });
  }
  bytes += pooled_rows_.size() * sizeof(float) + read_pools_.memory();
  pooled_rows_ = {};
  read_pools_ = {};
  bytes_.fetch_sub(bytes, kRelaxed);
  links_.erase(found);
}

std::span<std::byte> RowService::place(Peer peer, const FrameHeader& header) {
  Link& link = links_.at(peer);
  if (header.length > most(link, header.kind)) throw Error("a frame for which there is no memory");
  make_room(link.payload, header.length);
  return {link.payload.data(), header.length};
}

std::uint64_t RowService::most(const Link& link, std::uint16_t kind) {
  switch (kind) {
    case kProbe:
    case kRowHello:
      return kRowLimits[kind];
    case kLookup:
    case kDropRows:
      return link.client ? kRowLimits[kind] : 0;
    case kPushRows:  // of no more rows than were ever looked up
      return link.client ? sizeof(PushHead) + link.client->most_floats * sizeof(float) : 0;
    default:
      return 0;
  }
}

std::optional<std::size_t> RowService::elsewhere(Peer peer, const FrameHeader& header) {
  const Link& link = links_.at(peer);
  if (header.kind != kRowHello || header.length != sizeof(RowHello) || link.client) {
    return std::nullopt;
  }
  const auto said = head_of<RowHello>(link.payload, header.length);
  const std::size_t number = loop_of(said.client, loop_.count);
  return number == loop_.number ? std::nullopt : std::optional(number);
}

void RowService::frame(Peer peer, const FrameHeader& header, Outbox& outbox) {
  Link& link = links_.at(peer);
  switch (header.kind) {
    case kProbe: {
      const std::span<const std::byte> same(link.payload.data(), header.length);
      return outbox.send({.kind = kProbe}, {&same, 1});
    }
    case kRowHello:
      return hello(peer, link, header.length, outbox);
    default:
      break;
  }
  if (!link.client) throw Error("a frame before a hello, or of one whose place another has");
  switch (header.kind) {
    case kLookup:
      return look_up(link, header, outbox);
    case kPushRows:
      return push(link, header, outbox);
    case kDropRows:
      return drop(link, header);
    default:
      throw Error("a kind that an embedding server does not know");
  }
}

void RowService::hello(Peer peer, Link& link, std::size_t length, Outbox& outbox) {
  const auto said = head_of<RowHello>(link.payload, length);
  if (length != sizeof said || link.client) throw Error("a hello that is none");
  if (said.rows != digest_) throw Error("other tables, or rows at other servers");
  if (clients_.size() >= kClients && !clients_.contains(said.client)) {
    throw Error("more clients than there may be");
  }
  const auto [found, fresh] = clients_.try_emplace(said.client);
  Client& client = found->second;
  if (fresh) client.life = said.life;
  if (client.life != said.life) {
    if (said.life < client.life) throw Error("a life in whose place another has come");
    for (Ticket& ticket : client.tickets) let_go(ticket);
    client.life = said.life;
    client.applied = 0;
    client.outcomes = {};
    client.in_rows = {};
    client.told.clear();
  }
  if (client.peer != 0) links_.at(client.peer).client = nullptr;
  client.peer = peer;
  link.client = &client;
  clients_count_.store(clients_.size(), kRelaxed);
  link.welcome = {boot_, client.applied, client.outcomes, client.in_rows};
  answer(outbox, kRowWelcome, 0, link.welcome);
}

RowService::Ticket* RowService::find(Client& client, std::uint64_t number) {
  if (number == 0) return nullptr;
  const auto found = std::ranges::find(client.tickets, number, &Ticket::number);
  return found == client.tickets.end() ? nullptr : &*found;
}

RowService::Ticket& RowService::ticket_for(Client& client, std::uint64_t number) {
  Ticket* ticket = find(client, number);
  if (!ticket) {
    const auto oldest = std::ranges::min_element(client.tickets, {}, &Ticket::number);  // or free
    const bool all = oldest == client.tickets.end() || oldest->number != 0;
    if (all && client.tickets.size() < kTickets) return client.tickets.emplace_back();
    ticket = &*oldest;
    if (all && !ticket->expired) expired_.fetch_add(1, kRelaxed);
  }
  let_go(*ticket);
  return *ticket;
}

void RowService::let_go(Ticket& ticket) {
  holder_.release(ticket.keys);
  ticket.number = 0;
  ticket.expired = false;
}

void RowService::look_up(Link& link, const FrameHeader& header, Outbox& outbox) {
  const auto head = head_of<LookupHead>(link.payload, header.length);
  const std::size_t tables = numbers_.size();
  const std::size_t numbers = head.wants == 1 ? 2 * tables : tables;
  const std::size_t counts_end = sizeof head + (numbers + numbers % 2) * sizeof(std::uint32_t);
  if (head.tables != tables || head.trains >= kOfOne + tables || head.wants > 1 ||
      header.length < counts_end) {
    throw Error("a lookup without its counts");
  }
  const std::span counts(reinterpret_cast<const std::uint32_t*>(link.payload.data() + sizeof head),
                         tables);
  const std::span wanted(counts.data() + (head.wants == 1 ? tables : 0), tables);
  std::uint64_t rows = 0, floats = 0, beside = 0;
  for (std::size_t t = 0; t < tables; ++t) {
    if (wanted[t] > counts[t]) throw Error("a lookup that wants more rows than it counts");
    if (counts[t] > 0 && head.trains >= kOfOne && head.trains - kOfOne != t) {
      throw Error("a lookup for one table with another's ids");
    }
    rows += counts[t];
    floats += std::uint64_t{wanted[t]} * dims_[t];
    if (wanted[t] < counts[t]) beside += std::uint64_t{counts[t]} * dims_[t];
  }
  const std::uint64_t ids_end = counts_end + rows * sizeof(std::uint64_t);
  if (header.length < ids_end || (head.pools == 0 && header.length != ids_end)) {
    throw Error("a lookup with other ids than it counts");
  }
  if (std::max(floats, beside) * sizeof(float) > kRowLimits[kRows]) {
    throw Error("a lookup of too many rows");
  }
  const auto* ids = reinterpret_cast<const std::uint64_t*>(link.payload.data() + counts_end);
  for (std::size_t t = 0; t < tables; ++t) {
    ids_[t] = {ids, counts[t]};
    ids += counts[t];
    if (!holder_.tables()[t]->grows()) continue;  // its table knows which rows are here
    for (const std::uint64_t id : ids_[t]) {
      if (placement_(numbers_[t], id) != mine_) throw Error("an id whose row another server has");
    }
  }
  if (head.trains != 0 && header.correlation == 0) throw Error("a lookup without a ticket");
  Client& client = *link.client;
  Ticket* const ticket = head.trains != 0 ? &ticket_for(client, header.correlation) : nullptr;
  ServedPools& pools = ticket ? ticket->pools : read_pools_;
  const CountedPools counted{pools, bytes_};
  pools.read({link.payload.data() + ids_end, header.length - ids_end}, head.pools, counts, dims_);
  const std::uint64_t bytes = floats * sizeof(float) + pools.bytes();
  if (bytes > kRowLimits[kRows]) throw Error("a lookup of too many pools");
  make_room(link.reply, bytes);
  auto* values = reinterpret_cast<float*>(link.reply.data());
  float* kept = room_for_pooled(beside);
  for (std::size_t t = 0; t < tables; ++t) {
    values_[t] = wanted[t] < counts[t] ? kept : values;
    values += wanted[t] * dims_[t];
    if (wanted[t] < counts[t]) kept += counts[t] * dims_[t];
  }
  if (ticket) {
    holder_.pull(ids_, ticket->keys, values_);
    ticket->number = header.correlation;
    ticket->round = round_;
    ticket->trains = head.trains;
    ticket->wanted.assign(wanted.begin(), wanted.end());
    client.most_floats = std::max(client.most_floats, floats + pools.floats());
    lookups_.fetch_add(1, kRelaxed);
  } else {
    holder_.look(ids_, values_);
    reads_.fetch_add(1, kRelaxed);
  }
  values = reinterpret_cast<float*>(link.reply.data());
  for (std::size_t t = 0; t < tables; ++t) {
    if (wanted[t] < counts[t]) std::copy_n(values_[t], wanted[t] * dims_[t], values);
    values += wanted[t] * dims_[t];
  }
  if (!pools.empty()) {
    pools.make(values_, link.reply.data() + floats * sizeof(float));
    pooled_.fetch_add(pools.floats(), kRelaxed);
  }
  looked_up_.fetch_add(rows, kRelaxed);
  const std::span<const std::byte> reply(link.reply.data(), bytes);
  outbox.send({.kind = kRows, .correlation = header.correlation}, {&reply, 1});
}

bool RowService::gradients_of(Ticket& ticket, const float* pushed, std::size_t floats) {
  std::size_t own = 0, beside = 0;
  for (std::size_t t = 0; t < numbers_.size(); ++t) {
    const std::size_t count = ticket.keys.parts[t].count;
    own += ticket.wanted[t] * dims_[t];
    if (ticket.wanted[t] < count || ticket.pools.of(t)) beside += count * dims_[t];
  }
  if (floats != own + ticket.pools.floats())
    throw Error("a push of other rows than were looked up");
  const auto finite = [](const float* from, std::size_t n) {
    return update_kernels().first_not_finite(from, n) == n;
  };
  if (!finite(pushed, floats)) return false;
  const float* const d_pools = pushed + own;
  float* sum = room_for_pooled(beside);
  for (std::size_t t = 0; t < numbers_.size(); ++t) {
    const std::size_t n = ticket.wanted[t] * dims_[t], count = ticket.keys.parts[t].count;
    gradients_[t] = pushed;
    pushed += n;
    if (ticket.wanted[t] == count && !ticket.pools.of(t)) continue;
    std::copy_n(gradients_[t], n, sum);
    std::fill_n(sum + n, count * dims_[t] - n, 0.0f);
    ticket.pools.add(d_pools, t, sum);
    gradients_[t] = sum;
    sum += count * dims_[t];
  }
  return finite(pooled_rows_.data(), beside);
}

void RowService::push(Link& link, const FrameHeader& header, Outbox& outbox) {
  const auto head = head_of<PushHead>(link.payload, header.length);
  Client& client = *link.client;
  link.settled = {};
  if (head.number <= client.applied) {  // it came again
    if (head.number == 0) throw Error("a push without a number");
    repeated_.fetch_add(1, kRelaxed);
    if (!client.told.empty()) {
      const Settled& before = client.told[head.number % kTickets];
      if (before.applied == head.number) link.settled = before;
    }
    link.settled.applied = client.applied;
    return answer(outbox, kSettled, header.correlation, link.settled);
  }
  Ticket* const ticket = find(client, header.correlation);
  if (!ticket) throw Error("a push of rows that were not looked up");
  client.told.resize(kTickets);  // while nothing is changed yet
  const auto* const gradients = reinterpret_cast<const float*>(link.payload.data() + sizeof head);
  const std::size_t floats = (header.length - sizeof head) / sizeof(float);
  if (ticket->expired) {
    link.settled.settling = Settling::expired;
  } else if (header.length % sizeof(float) != 0) {
    throw Error("a push of other rows than were looked up");
  } else if (!gradients_of(*ticket, gradients, floats)) {
    link.settled.settling = Settling::not_finite;
    not_finite_.fetch_add(1, kRelaxed);
  } else {
    std::size_t rows = 0;
    for (const RowKeys::Part& part : ticket->keys.parts) rows += part.count;
    if (ticket->trains >= kOfOne) {
      const std::size_t table = ticket->trains - kOfOne;
      link.settled.publication = holder_.push_apart(ticket->keys, table, gradients_[table]);
      apart_.fetch_add(1, kRelaxed);
    } else {
      // (Of those before it was restored its tables know.)
      const std::uint64_t step = loop_.steps->fetch_add(1, kRelaxed);
      link.settled.publication = holder_.push(ticket->keys, gradients_, step);
    }
    ++client.in_rows.pushes;
    client.in_rows.examples += head.examples;
    pushes_.fetch_add(1, kRelaxed);
    pushed_.fetch_add(rows, kRelaxed);
  }
  let_go(*ticket);
  client.outcomes.add(link.settled.settling, head.number - client.applied);
  client.applied = link.settled.applied = head.number;
  link.settled.in_rows = client.in_rows;
  client.told[head.number % kTickets] = link.settled;
  answer(outbox, kSettled, header.correlation, link.settled);
}

void RowService::drop(Link& link, const FrameHeader& header) {
  if (header.length != sizeof(RowDrop)) throw Error("a drop that is none");
  if (Ticket* const ticket = find(*link.client, header.correlation)) let_go(*ticket);
}

std::vector<RowService::Applied> RowService::applied() const {
  std::vector<Applied> all;
  all.reserve(clients_.size());
  for (const auto& [number, client] : clients_) {
    all.push_back({number, client.life, client.applied, client.outcomes, client.in_rows});
  }
  std::ranges::sort(all, {}, &Applied::client);
  return all;
}

void RowService::restore(std::span<const Applied> applied, std::uint64_t pushes) {
  if (!clients_.empty()) throw Error("clients have come already");
  for (const auto& [number, life, last, outcomes, in_rows] : applied) {
    const auto [client, fresh] = clients_.try_emplace(number);
    if (!fresh) throw Error("client " + std::to_string(number) + " is there twice");
    client->second.life = life;
    client->second.applied = last;
    client->second.outcomes = outcomes;
    client->second.in_rows = in_rows;
  }
  clients_count_.store(clients_.size(), kRelaxed);
  pushes_.store(pushes, kRelaxed);
}

void RowService::expire() {
  for (auto& [_, client] : clients_) {
    for (Ticket& ticket : client.tickets) {
      if (ticket.number == 0 || ticket.expired || ticket.round == round_) continue;
      holder_.release(ticket.keys);
      ticket.keys = {};
      ticket.wanted = std::vector<std::uint32_t>();  // (not {}, which keeps its memory)
      bytes_.fetch_sub(ticket.pools.memory(), kRelaxed);
      ticket.pools = {};
      ticket.expired = true;  // its push is told so
      expired_.fetch_add(1, kRelaxed);
    }
  }
  ++round_;
}

void RowService::Counters::add(const Counters& other) {
  for (const auto sum :
       {&Counters::lookups, &Counters::reads, &Counters::looked_up, &Counters::pooled,
        &Counters::pushes, &Counters::apart, &Counters::pushed, &Counters::not_finite,
        &Counters::expired, &Counters::repeated, &Counters::clients, &Counters::payload_bytes}) {
    this->*sum += other.*sum;
  }
}

RowService::Counters RowService::counters() const {
  return {lookups_.load(kRelaxed),  reads_.load(kRelaxed),         looked_up_.load(kRelaxed),
          pooled_.load(kRelaxed),   pushes_.load(kRelaxed),        apart_.load(kRelaxed),
          pushed_.load(kRelaxed),   not_finite_.load(kRelaxed),    expired_.load(kRelaxed),
          repeated_.load(kRelaxed), clients_count_.load(kRelaxed), bytes_.load(kRelaxed)};
}

}  // namespace leashed
