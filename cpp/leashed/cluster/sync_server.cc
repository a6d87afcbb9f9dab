#include "leashed/cluster/sync_server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/base/team.h"
#include "leashed/cluster/averaging.h"
#include "leashed/net/feedback.h"
#include "leashed/net/spin.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

constexpr int kEvents = 64;        // looked at at once
constexpr std::size_t kTurn = 32;  // frames of one connection before the next has its turn

std::int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int given(int result, const char* what) {
  if (result < 0) throw Error(std::string("the system gives no more descriptors (") + what + ")");
  return result;
}

}  // namespace

struct SyncServer::Link {
  Link(int socket, bool checked, Transport wish)
      : connection(connected(socket, kServerLimits, checked, wish, Role::accepts)) {}

  AlignedArray<std::byte> payload{kMostExchange};  // of what came, and then the reply's
  std::unordered_map<std::uint32_t, Known> known;  // of fragments
  // Last of what may throw: it keeps the socket.
  const std::unique_ptr<Connection> connection;
  WireCount::Seen seen;
  short events = EPOLLIN;  // that are waited for
  bool waits = true;       // for its turn
};

SyncServer::SyncServer(const std::vector<Holding>& holdings)
    : poll_(given(epoll_create1(EPOLL_CLOEXEC), "epoll")),
      wake_(given(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
  for (const auto& [fragment, length] : holdings) {
    if (length == 0 || length > kFragment || !place_.emplace(fragment, held_.size()).second) {
      throw Error("fragment " + std::to_string(fragment) + " with " + std::to_string(length) +
                  " floats cannot be held: it is empty, too long, or there twice");
    }
    held_.emplace_back().values.resize(length);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  given(epoll_ctl(poll_.get(), EPOLL_CTL_ADD, wake_.get(), &event), "epoll");
  thread_ = start_thread([this] { serve(); });
}

SyncServer::~SyncServer() {
  ended_.store(true, kRelaxed);
  wake();
  thread_.join();
}

void SyncServer::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);  // full: it is awake
}

void SyncServer::adopt(int socket, bool checked, Transport wish) {
  std::list<std::unique_ptr<Link>> one(1);  // nothing may throw that has the socket
  one.front() = std::make_unique<Link>(socket, checked, wish);
  {
    const std::lock_guard lock(mutex_);
    arriving_.splice(arriving_.end(), one);
  }
  wake();
}

SyncServer::Counters SyncServer::counters() const {
  return {exchanges_.load(kRelaxed),
          changes_.load(kRelaxed),
          traffic_.own(),
          traffic_.kernel(),
          seconds(),
          connections_.load(kRelaxed),
          refused_.load(kRelaxed),
          not_finite_.load(kRelaxed)};
}

double SyncServer::seconds() const {
  clockid_t clock{};
  // (It cannot fail: the thread is there for as long as the server.)
  pthread_getcpuclockid(const_cast<std::jthread&>(thread_).native_handle(), &clock);
  return static_cast<double>(nanoseconds(clock) - waited_.load(kRelaxed)) * 1e-9;
}

SyncServer::Snapshot SyncServer::snapshot() const {
  Snapshot snapshot;
  for (const Held& held : held_) {
    const std::lock_guard lock(held.mutex);
    snapshot.values.insert(snapshot.values.end(), held.values.begin(), held.values.end());
    snapshot.present.push_back(held.present);
    snapshot.changes += held.changes;
  }
  return snapshot;
}

void SyncServer::restore(const Snapshot& snapshot) {
  std::size_t length = 0;
  for (const Held& held : held_) length += held.values.size();
  if (snapshot.values.size() != length || snapshot.present.size() != held_.size()) {
    throw Error("the snapshot is of other fragments than this server holds");
  }
  auto from = snapshot.values.begin();
  for (std::size_t i = 0; i < held_.size(); ++i) {
    Held& held = held_[i];
    const std::lock_guard lock(held.mutex);
    const auto end = from + static_cast<std::ptrdiff_t>(held.values.size());
    std::copy(std::exchange(from, end), end, held.values.begin());
    held.present = snapshot.present[i];
    held.changes = i == 0 ? snapshot.changes : 0;
  }
  exchanges_.store(snapshot.changes, kRelaxed);
  changes_.store(snapshot.changes, kRelaxed);
}

void SyncServer::welcome(std::vector<Link*>& turns, std::vector<Link*>& next) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof count);
  std::list<std::unique_ptr<Link>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(arriving_);
  }
  for (auto& link : arrived) {
    Link* const key = link.get();
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(key->events);
    event.data.ptr = key;
    const int socket = link->connection->socket();
    try {
      turns.reserve(links_.size() + 1);
      next.reserve(links_.size() + 1);
      links_.emplace(key, std::move(link));
    } catch (const std::bad_alloc&) {  // it is closed
      continue;
    }
    if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket, &event) < 0) {
      links_.erase(key);
    } else {
      turns.push_back(key);
    }
  }
  connections_.store(links_.size(), kRelaxed);
}

void SyncServer::serve() {
  epoll_event events[kEvents];
  // Of those that have something to do, each once. There is room for all links: nothing here may
  // throw.
  std::vector<Link*> turns, next;
  Spin spin;
  while (!ended_.load(kRelaxed)) {
    int n = 0;
    const auto look = [&](int milliseconds) {
      n = epoll_wait(poll_.get(), events, kEvents, milliseconds);
      return n > 0;
    };
    if (!look(0) && turns.empty()) {
      const std::int64_t before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
      spin.wait([&] { return look(0); }, [&] { look(-1); });
      waited_.fetch_add(nanoseconds(CLOCK_THREAD_CPUTIME_ID) - before, kRelaxed);
    }
    bool arrivals = false;
    for (int i = 0; i < n; ++i) {
      Link* const link = static_cast<Link*>(events[i].data.ptr);
      arrivals |= !link;
      if (link && !std::exchange(link->waits, true)) turns.push_back(link);
    }
    next.clear();
    if (arrivals) welcome(turns, next);
    for (Link* const link : turns) {
      if (!go_on(*link)) {
        // Closing it would not end its events where another process has a copy.
        epoll_ctl(poll_.get(), EPOLL_CTL_DEL, link->connection->socket(), nullptr);
        links_.erase(link);
        connections_.store(links_.size(), kRelaxed);
      } else if (link->waits) {
        next.push_back(link);
      }
    }
    turns.swap(next);
  }
}

bool SyncServer::go_on(Link& link) {
  Connection& connection = *link.connection;
  const Connection::Place place = [&link](const FrameHeader& header) {
    return std::span(link.payload.data(), header.length);
  };
  bool alive = true;
  try {
    bool more = true;
    // Until its reply has gone nothing is taken from it.
    for (std::size_t turn = 0; more && turn < kTurn && connection.flush(); ++turn) {
      const auto header = connection.take(place);
      if (header) answer(link, *header);
      more = header.has_value();
    }
    const bool sending = connection.sending();
    const std::optional<short> events = connection.events(!sending, sending);
    link.waits = !events;
    if (events && *events != link.events) {
      epoll_event event{};
      event.events = static_cast<std::uint32_t>(*events);  // poll's and epoll's are the same
      event.data.ptr = &link;
      epoll_ctl(poll_.get(), EPOLL_CTL_MOD, connection.socket(), &event);
      link.events = *events;
    }
  } catch (const ConnectionError& error) {
    if (error.reason == ConnectionError::Reason::refused) refused_.fetch_add(1, kRelaxed);
    alive = false;
  } catch (const std::exception&) {  // no such fragment; no memory
    refused_.fetch_add(1, kRelaxed);
    alive = false;
  }
  traffic_.add(connection, link.seen);
  return alive;
}

void SyncServer::answer(Link& link, const FrameHeader& header) {
  if (header.kind == kProbe) {
    const std::span<const std::byte> same(link.payload.data(), header.length);
    return link.connection->begin({.kind = kProbe}, {&same, 1});
  }
  ExchangeHead head;
  if (header.kind != kExchange || header.length < sizeof head)
    throw Error("an exchange without its head");
  std::memcpy(&head, link.payload.data(), sizeof head);
  const auto found = place_.find(head.fragment);
  if (found == place_.end()) throw Error("a fragment that is not held here");
  Held& held = held_[found->second];
  const std::size_t n = held.values.size();
  const bool differs = head.codec != Codec::none;
  if (static_cast<std::uint16_t>(head.codec) >= kCodecs || head.keep > (differs ? 0 : 1)) {
    throw Error("a codec that is not known here");
  }
  const std::size_t bytes = encoded_size(head.codec, n);
  if (header.length != sizeof head + bytes) throw Error("of another length");
  if (!(head.alpha >= 0 && head.alpha <= 1)) throw Error("an alpha outside 0 to 1");
  std::byte* const payload = link.payload.data() + sizeof head;
  if (differs) {
    const auto kept = link.known.find(head.fragment);
    if (kept == link.known.end()) throw Error("by how much values differ, but not from what");
    Known& known = kept->second;
    const std::span values(values_.data(), n);
    decode_and_add(head.codec, payload, known.theta);
    std::copy(known.theta.begin(), known.theta.end(), values.begin());
    interpolate(held, head, values);
    tell(head.codec, values, known.w, payload);
  } else {
    const std::span values(reinterpret_cast<float*>(payload), n);
    Known* const known = head.keep ? &link.known[head.fragment] : nullptr;
    if (known) known->theta.assign(values.begin(), values.end());
    interpolate(held, head, values);
    if (known) known->w.assign(values.begin(), values.end());
  }
  exchanges_.fetch_add(1, kRelaxed);
  const std::span<const std::byte> reply(payload, bytes);
  link.connection->begin({.kind = kReply, .correlation = header.correlation}, {&reply, 1});
}

void SyncServer::interpolate(Held& held, const ExchangeHead& head, std::span<float> values) {
  // While they lie in the cache. One trainer's must not become everybody's.
  if (update_kernels().first_not_finite(values.data(), values.size()) != values.size()) {
    not_finite_.fetch_add(1, kRelaxed);
    throw Error("values that are not finite");
  }
  const std::lock_guard lock(held.mutex);
  float* const w = held.values.data();
  if (!held.present) {
    std::copy(values.begin(), values.end(), w);
    held.present = true;
  } else {
    leashed::interpolate(w, values, head.alpha, head.old_reply != 0);
    if (head.alpha == 0) return;
  }
  ++held.changes;
  changes_.fetch_add(1, kRelaxed);
}

}  // namespace leashed
