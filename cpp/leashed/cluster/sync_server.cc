#include "leashed/cluster/sync_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "leashed/base/aligned.h"
#include "leashed/base/error.h"
#include "leashed/base/team.h"

namespace leashed {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr int kEvents = 64;        // looked at at once
constexpr std::size_t kTurn = 32;  // frames of one connection before the next has its turn

int given(int result, const char* what) {
  if (result < 0) throw Error(std::string("the system gives no more descriptors (") + what + ")");
  return result;
}

}  // namespace

struct SyncServer::Link {
  Link(int socket, bool checked) : connection(socket, kServerLimits, checked) {}

  AlignedArray<std::byte> payload{kMostExchange};  // of what came, and then the reply's
  Connection connection;                           // last of what may throw: it keeps the socket
  std::uint64_t sent = 0, received = 0;            // bytes that have been counted
  bool wants_to_write = false;
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
    fragments_.push_back(fragment);
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

void SyncServer::adopt(int socket, bool checked) {
  {
    const std::lock_guard lock(mutex_);
    arriving_.reserve(arriving_.size() + 1);  // nothing may throw that has the socket
    arriving_.push_back(std::make_unique<Link>(socket, checked));
  }
  wake();
}

SyncServer::Counters SyncServer::counters() const {
  return {exchanges_.load(kRelaxed), bytes_in_.load(kRelaxed), bytes_out_.load(kRelaxed),
          connections_.load(kRelaxed), refused_.load(kRelaxed)};
}

SyncServer::Snapshot SyncServer::snapshot() const {
  Snapshot snapshot;
  for (const Held& held : held_) {
    const std::lock_guard lock(held.mutex);
    snapshot.values.insert(snapshot.values.end(), held.values.begin(), held.values.end());
    snapshot.present.push_back(held.present);
    snapshot.exchanges += held.exchanges;
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
    held.exchanges = i == 0 ? snapshot.exchanges : 0;
  }
  exchanges_.store(snapshot.exchanges, kRelaxed);
}

void SyncServer::welcome() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof count);
  std::vector<std::unique_ptr<Link>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(arriving_);
  }
  for (auto& link : arrived) {
    Link* const key = link.get();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = key;
    const int socket = link->connection.socket();
    try {
      links_.emplace(key, std::move(link));
    } catch (const std::bad_alloc&) {  // it is closed
      continue;
    }
    if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, socket, &event) < 0) links_.erase(key);
  }
  connections_.store(links_.size(), kRelaxed);
}

void SyncServer::serve() {
  epoll_event events[kEvents];
  while (!ended_.load(kRelaxed)) {
    const int n = epoll_wait(poll_.get(), events, kEvents, -1);
    bool arrivals = false;
    for (int i = 0; i < n; ++i) {
      Link* const link = static_cast<Link*>(events[i].data.ptr);
      if (!link) {
        arrivals = true;
      } else if (!go_on(*link)) {
        // Closing it would not end its events where another process has a copy.
        epoll_ctl(poll_.get(), EPOLL_CTL_DEL, link->connection.socket(), nullptr);
        links_.erase(link);
        connections_.store(links_.size(), kRelaxed);
      }
    }
    if (arrivals) welcome();
  }
}

bool SyncServer::go_on(Link& link) {
  Connection& connection = link.connection;
  const Connection::Place place = [&link](const FrameHeader& header) {
    return std::span(link.payload.data(), header.length);
  };
  bool alive = true;
  try {
    bool more = true;
    for (std::size_t turn = 0; more && turn < kTurn && connection.flush(); ++turn) {
      const auto header = connection.take(place);
      if (header) answer(link, *header);
      more = header.has_value();
    }
    // Until its reply has gone nothing is taken from it. What has been read of it, but had no turn,
    // has one as soon as it could be written to.
    const bool wants_to_write = more;
    if (wants_to_write != link.wants_to_write) {
      epoll_event event{};
      event.events = wants_to_write ? EPOLLOUT : EPOLLIN;
      event.data.ptr = &link;
      epoll_ctl(poll_.get(), EPOLL_CTL_MOD, connection.socket(), &event);
      link.wants_to_write = wants_to_write;
    }
  } catch (const ConnectionError& error) {
    if (error.reason == ConnectionError::Reason::refused) refused_.fetch_add(1, kRelaxed);
    alive = false;
  } catch (const std::exception&) {  // no such fragment; no memory
    refused_.fetch_add(1, kRelaxed);
    alive = false;
  }
  bytes_in_.fetch_add(connection.received() - std::exchange(link.received, connection.received()),
                      kRelaxed);
  bytes_out_.fetch_add(connection.sent() - std::exchange(link.sent, connection.sent()), kRelaxed);
  return alive;
}

void SyncServer::answer(Link& link, const FrameHeader& header) {
  ExchangeHead head;
  if (header.kind != kExchange || header.length < sizeof head)
    throw Error("an exchange without its head");
  std::memcpy(&head, link.payload.data(), sizeof head);
  const auto found = place_.find(head.fragment);
  if (found == place_.end()) throw Error("a fragment that is not held here");
  Held& held = held_[found->second];
  const std::size_t n = held.values.size();
  if (header.length != sizeof head + n * sizeof(float)) throw Error("of another length");
  const float alpha = head.alpha;
  if (!(alpha >= 0 && alpha <= 1)) throw Error("an alpha outside 0 to 1");
  auto* const theta = reinterpret_cast<float*>(link.payload.data() + sizeof head);
  {
    const std::lock_guard lock(held.mutex);
    float* const w = held.values.data();
    if (!held.present) {
      std::copy_n(theta, n, w);
      held.present = true;
    } else if (head.old_reply) {
      for (std::size_t i = 0; i < n; ++i) {
        const float old = w[i];
        w[i] = (1 - alpha) * old + alpha * theta[i];
        theta[i] = old;
      }
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        w[i] = (1 - alpha) * w[i] + alpha * theta[i];
        theta[i] = w[i];
      }
    }
    ++held.exchanges;
  }
  exchanges_.fetch_add(1, kRelaxed);
  const std::span<const std::byte> reply = std::as_bytes(std::span(theta, n));
  link.connection.begin({.kind = kReply, .correlation = header.correlation}, {&reply, 1});
}

}  // namespace leashed
