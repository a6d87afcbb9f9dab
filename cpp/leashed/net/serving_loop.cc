#include "leashed/net/serving_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/base/team.h"
#include "leashed/net/spin.h"

namespace leashed {
namespace {

constexpr int kEvents = 64;          // looked at at once
constexpr std::size_t kFrames = 32;  // of one connection before the next has its turn
constexpr int kMostRounds = 64;      // of turns at most before the service is woken late

std::int64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int given(int result, const char* what) {
  if (result < 0) throw Error(std::string("the system gives no more descriptors (") + what + ")");
  return result;
}

// Answers over the connection.
struct Answer final : Outbox {
  explicit Answer(Connection& to) : connection(to) {}
  void send(const FrameHeader& header, Connection::Parts parts) override {
    connection.begin(header, parts);
  }
  Connection& connection;
};

}  // namespace

struct ServingLoop::Link {
  std::unique_ptr<Connection> connection;
  Peer peer = 0;
  WireCount::Seen seen;
  short events = EPOLLIN;        // that are waited for
  bool waits = true;             // for its turn
  std::span<std::byte> payload;  // where that of the frame goes, or has gone
  struct Handed {
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  std::optional<Handed> handed;  // another loop's last frame of it, which is told first
  struct Letter {
    FrameHeader header;
    std::vector<std::byte> head;
    std::vector<std::span<const std::byte>> parts;  // the head first
    std::shared_ptr<const void> keeps;
  };
  std::deque<Letter> letters;  // the first is being sent, once it is `begun`
  bool begun = false;
  bool refused = false;
};

class ServingLoop::Letters final : public Post {
 public:
  explicit Letters(ServingLoop& loop) : loop_(loop) {}

  void send(Peer to, const FrameHeader& header, std::span<const std::byte> head,
            Connection::Parts parts, std::shared_ptr<const void> keeps) noexcept override {
    Link* const link = find(to);
    if (!link) return;
    try {
      if (link->letters.size() > kBacklog) throw Error("a peer who takes nothing");
      Link::Letter& letter = link->letters.emplace_back();
      letter.header = header;
      letter.head.assign(head.begin(), head.end());
      letter.parts.reserve(1 + parts.size());
      letter.parts.emplace_back(letter.head);
      letter.parts.insert(letter.parts.end(), parts.begin(), parts.end());
      letter.keeps = std::move(keeps);
      give_turn(*link);
    } catch (const std::exception&) {  // or out of memory
      refuse(to);
    }
  }
  void refuse(Peer peer) noexcept override {
    Link* const link = find(peer);
    if (!link) return;
    link->refused = true;
    link->letters.clear();  // what is kept for him is let go now: nothing is sent any more
    give_turn(*link);
  }
  void wake(std::int64_t ns) noexcept override { loop_.wake_at_ = std::min(loop_.wake_at_, ns); }
  std::int64_t now() const noexcept override { return nanoseconds(CLOCK_MONOTONIC); }

 private:
  Link* find(Peer peer) const {
    const auto found = loop_.links_.find(peer);
    return found == loop_.links_.end() ? nullptr : found->second.get();
  }
  void give_turn(Link& link) {
    if (!std::exchange(link.waits, true)) loop_.posted_.push_back(&link);
  }

  ServingLoop& loop_;
};

ServingLoop::ServingLoop(Service& service, Others others)
    : service_(service),
      others_(std::move(others)),
      poll_(given(epoll_create1(EPOLL_CLOEXEC), "epoll")),
      wake_(given(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  given(epoll_ctl(poll_.get(), EPOLL_CTL_ADD, wake_.get(), &event), "epoll");
  thread_ = start_thread([this] { serve(); });
}

ServingLoop::~ServingLoop() { end(); }

void ServingLoop::end() {
  if (!thread_.joinable()) return;
  ended_.store(true, kRelaxed);
  wake();
  thread_.join();
}

void ServingLoop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);  // full: it is awake
}

void ServingLoop::adopt(const std::function<std::unique_ptr<Connection>()>& make) {
  std::list<std::unique_ptr<Link>> one(1);  // nothing may throw that has the connection
  one.front() = std::make_unique<Link>();
  one.front()->connection = make();
  arrive(one);
}

void ServingLoop::arrive(std::list<std::unique_ptr<Link>>& one) {
  {
    const std::lock_guard lock(mutex_);
    arriving_.splice(arriving_.end(), one);
  }
  wake();
}

void ServingLoop::hand_over(Link& link, ServingLoop& to, const FrameHeader& header) {
  std::list<std::unique_ptr<Link>> one(1);
  one.front() = std::make_unique<Link>();
  Link& there = *one.front();
  there.handed.emplace(header, std::vector(link.payload.begin(), link.payload.end()));
  traffic_.add(*link.connection, link.seen);
  epoll_ctl(poll_.get(), EPOLL_CTL_DEL, link.connection->socket(), nullptr);
  there.seen = link.seen;
  there.connection = std::move(link.connection);
  to.arrive(one);
}

void ServingLoop::quiet(const std::function<void()>& f) {
  std::unique_lock lock(edge_mutex_);
  if (holder_ == std::this_thread::get_id()) {
    lock.unlock();
    return f();
  }
  wanted_.fetch_add(1, kRelaxed);
  wake();
  edge_.wait(lock, [this] { return held_ && holder_ == std::thread::id(); });
  holder_ = std::this_thread::get_id();
  lock.unlock();
  struct Done {
    ~Done() {
      const std::lock_guard lock(loop.edge_mutex_);
      loop.holder_ = {};
      loop.wanted_.fetch_sub(1, kRelaxed);
      loop.edge_.notify_all();
    }
    ServingLoop& loop;
  } const done{*this};
  f();
}

void ServingLoop::hold() {
  std::unique_lock lock(edge_mutex_);
  held_ = true;
  edge_.notify_all();
  edge_.wait(lock, [this] { return wanted_.load(kRelaxed) == 0; });
  held_ = false;
}

ServingLoop::Counters ServingLoop::counters() const {
  return {traffic_.own(), traffic_.kernel(), seconds(), connections_.load(kRelaxed),
          refused_.load(kRelaxed)};
}

double ServingLoop::seconds() const {
  clockid_t clock{};
  // (It cannot fail: the thread is there for as long as the server.)
  pthread_getcpuclockid(const_cast<std::jthread&>(thread_).native_handle(), &clock);
  return static_cast<double>(nanoseconds(clock) - waited_.load(kRelaxed)) * 1e-9;
}

void ServingLoop::welcome(std::vector<Link*>& turns, std::vector<Link*>& next) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof count);
  std::list<std::unique_ptr<Link>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(arriving_);
  }
  for (auto& arriving : arrived) {
    Link& link = *arriving;
    const Peer peer = link.peer = ++last_;
    try {
      turns.reserve(links_.size() + 1);
      next.reserve(links_.size() + 1);
      posted_.reserve(links_.size() + 1);
      links_.emplace(peer, std::move(arriving));
      service_.come(peer);
    } catch (const std::exception&) {  // it is closed
      refused_.fetch_add(1, kRelaxed);
      links_.erase(peer);
      continue;
    }
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(link.events);
    event.data.ptr = &link;
    if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, link.connection->socket(), &event) < 0) {
      refused_.fetch_add(1, kRelaxed);
      end(link);
    } else {
      turns.push_back(&link);
    }
  }
  connections_.store(links_.size(), kRelaxed);
}

template <class Look>
void ServingLoop::wait(const Look& look, Spin& spin) {
  const std::int64_t before = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  const auto due = [this] { return nanoseconds(CLOCK_MONOTONIC) >= wake_at_; };
  const auto sleep = [&] {
    if (wake_at_ == kNever) return look(-1);
    constexpr std::int64_t kMillisecond = 1'000'000, kMost = 60'000;
    const std::int64_t left = std::max<std::int64_t>(0, wake_at_ - nanoseconds(CLOCK_MONOTONIC));
    return look(static_cast<int>(std::min(left / kMillisecond + (left % kMillisecond > 0), kMost)));
  };
  spin.wait([&] { return look(0) || (wake_at_ != kNever && due()); }, sleep);
  waited_.fetch_add(nanoseconds(CLOCK_THREAD_CPUTIME_ID) - before, kRelaxed);
}

void ServingLoop::serve() {
  Letters letters(*this);
  service_.open(letters);
  epoll_event events[kEvents];
  // Of those that have something to do, each once. There is room for all links: nothing here may
  // throw.
  std::vector<Link*> turns, next;
  Spin spin;
  int rounds = 0;  // since the service was to be woken
  while (!ended_.load(kRelaxed)) {
    if (wanted_.load(kRelaxed) > 0) hold();
    turns.insert(turns.end(), posted_.begin(), posted_.end());
    posted_.clear();
    int n = 0;
    const auto look = [&](int milliseconds) {
      n = epoll_wait(poll_.get(), events, kEvents, milliseconds);
      return n > 0;
    };
    const bool due = wake_at_ != kNever && nanoseconds(CLOCK_MONOTONIC) >= wake_at_;
    if (!look(0) && turns.empty() && !due) wait(look, spin);
    const bool idle = n <= 0 && turns.empty();
    if (due && (idle || ++rounds > kMostRounds)) {
      rounds = 0;
      wake_at_ = kNever;
      service_.woken();
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
        end(*link);
      } else if (link->waits) {
        next.push_back(link);
      }
    }
    turns.swap(next);
  }
}

void ServingLoop::end(const Link& link) {
  // Closing it would not end its events where another process has a copy.
  if (link.connection) epoll_ctl(poll_.get(), EPOLL_CTL_DEL, link.connection->socket(), nullptr);
  const auto ended = links_.extract(link.peer);  // it is sent nothing any more
  service_.gone(ended.key());
  connections_.store(links_.size(), kRelaxed);
}

bool ServingLoop::flush(Link& link) {
  while (link.connection->flush()) {
    if (link.begun) {
      link.letters.pop_front();
      link.begun = false;
    }
    if (link.letters.empty()) return true;
    link.connection->begin(link.letters.front().header, link.letters.front().parts);
    link.begun = true;
  }
  return false;
}

bool ServingLoop::go_on(Link& link) {
  Connection& connection = *link.connection;
  Answer answer(connection);
  const Connection::Place place = [&](const FrameHeader& header) {
    return link.payload = service_.place(link.peer, header);
  };
  bool alive = true;
  try {
    if (const auto handed = std::exchange(link.handed, std::nullopt); handed && !link.refused) {
      std::ranges::copy(handed->payload, place(handed->header).begin());
      service_.frame(link.peer, handed->header, answer);
    }
    bool more = !link.refused;
    // Until its reply has gone nothing is taken from it.
    for (std::size_t turn = 0; more && turn < kFrames && flush(link); ++turn) {
      const auto header = connection.take(place);
      more = header.has_value();
      if (!header) continue;
      if (const auto number = service_.elsewhere(link.peer, *header)) {
        hand_over(link, others_(*number), *header);
        return false;
      }
      service_.frame(link.peer, *header, answer);
      more = !link.refused;
    }
    if (link.refused) throw Error("the service refuses it");
    const bool sending = connection.sending() || !link.letters.empty();
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
  } catch (const std::exception&) {  // the service's
    refused_.fetch_add(1, kRelaxed);
    alive = false;
  }
  traffic_.add(connection, link.seen);
  return alive;
}

}  // namespace leashed
