#include "leashed/cluster/remote_server.h"

#include <cstring>
#include <string>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"

namespace leashed {

using modes::WorkerRule;

namespace {

constexpr std::size_t kServer = 0;  // of a lane's conversation: the one that there is
constexpr std::size_t kHeadFloats = sizeof(GrantHead) / sizeof(float);
constexpr std::byte kProbeByte{1};

std::string in_seconds(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace

RemoteServer::RemoteServer(StopFlag& stop, const BatchSource& batches, const WorkerRule& rule,
                           OwnModels* models, std::size_t dimension, std::size_t lanes,
                           const Settings& settings)
    : stop_(stop),
      batches_(batches),
      rule_(rule),
      models_(models),
      dimension_(dimension),
      patience_(settings.patience),
      seats_(lanes) {
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    Seat& seat = seats_[lane];
    seat.hello = {settings.run, settings.client + lane, settings.life, settings.terms};
    seat.granted = AlignedArray<float>(kHeadFloats + dimension);
  }
}

void RemoteServer::adopt(std::size_t lane, int socket, bool checked, Transport wish) {
  Conversation& talk = seats_.at(lane).talk;  // before the socket is taken over
  talk.adopt(kServer, connected(socket, kModeLimits, checked, wish, Role::offers));
}

bool RemoteServer::missing(std::size_t lane) const {
  const Seat& seat = seats_.at(lane);
  return !seat.done.load(kRelaxed) && !seat.talk.there(kServer);
}

RemoteServer::Counters RemoteServer::counters() const {
  std::uint64_t of_all = 0;
  WireSum wire;
  for (const Seat& seat : seats_) {
    of_all += seat.examples.load(kRelaxed);
    wire.add(seat.talk.traffic());
  }
  return {grants_.load(kRelaxed),
          pushes_.load(kRelaxed),
          cut_.load(kRelaxed),
          hung_.load(kRelaxed),
          strange_.load(kRelaxed),
          left_out_.load(kRelaxed),
          of_all,
          wire.own,
          wire.kernel};
}

std::vector<std::uint64_t> RemoteServer::examples() const {
  std::vector<std::uint64_t> found;
  for (const Seat& seat : seats_) found.push_back(seat.examples.load(kRelaxed));
  return found;
}

void RemoteServer::begin(Lane& lane) {
  Seat& seat = seats_[lane.number];
  seat.wish = Seat::Say::pull;
  seat.heard = seat.quiet = now();
  turn(seat);
}

bool RemoteServer::await(Lane& lane) {
  Seat& seat = seats_[lane.number];
  if (!go_on(seat, [&] { return seat.granted_now || seat.ended; })) return false;
  if (seat.ended) return stop_.finish(StopReason::epochs), false;
  seat.granted_now = false;
  const GrantHead& head = *seat.leased;
  const float* const values = seat.granted.data() + kHeadFloats;
  lane.lease = {head.ticket, head.number, head.first, head.count, head.token};
  lane.pulled = {head.n, head.c, head.t, values};
  lane.theta = rule_.model == WorkerRule::Model::own ? (*models_)[lane.number] : values;
  lane.taken = false;
  lane.done = 0;
  return true;
}

void RemoteServer::read(Lane& lane, std::uint64_t first, std::size_t count) {
  batches_.fill_span(first, count, lane.batch);
}

bool RemoteServer::step(Lane& lane, bool) {
  models_->step(lane.number, lane.gradient.data());
  return !stop_.stopped();
}

void RemoteServer::push(Lane& lane) {
  Seat& seat = seats_[lane.number];
  const bool model = rule_.sends == WorkerRule::Sends::model;
  seat.sent = {model ? lane.theta : lane.gradient.data(), dimension_};
  seat.wish = Seat::Say::push;
  go_on(seat, [&] { return seat.wish != Seat::Say::push && !seat.pushing; });
}

void RemoteServer::leave(Lane& lane) {
  Seat& seat = seats_[lane.number];
  seat.done.store(true, kRelaxed);
  seat.talk.drop(kServer);
  if (seat.talk.renew(kServer)) seat.talk.drop(kServer);
}

template <class Done>
bool RemoteServer::go_on(Seat& seat, const Done& done) {
  seat.heard = seat.quiet = now();
  seat.talk.count();
  while (!done()) {
    if (stop_.stopped()) return false;
    if (turn(seat)) continue;
    be_patient(seat);
    const std::size_t lane = kServer;
    const bool connected = seat.talk.has(kServer);
    seat.talk.wait({&lane, connected ? 1u : 0u}, Deadline{});
  }
  return true;
}

bool RemoteServer::turn(Seat& seat) {
  bool something = false;
  std::optional<FrameHeader> header;
  try {
    const bool had = seat.talk.has(kServer);
    if (seat.talk.renew(kServer)) {
      if (had) cut_.fetch_add(1, kRelaxed);
      forget(seat);
      seat.quiet = now();
      something = true;
    }
    if (!seat.talk.has(kServer)) return something;
    something |= say(seat);
    header = hear(seat);
  } catch (const ConnectionError& error) {
    lose(seat, error.reason == ConnectionError::Reason::refused ? &strange_ : nullptr);
    return true;
  } catch (const Error&) {
    lose(seat, &strange_);
    return true;
  }
  if (!header) return something;
  seat.heard = seat.quiet = now();
  understand(seat, *header);
  return true;
}

bool RemoteServer::say(Seat& seat) {
  bool something = false;
  while (seat.talk.free(kServer)) {
    if (std::exchange(seat.pushing, false)) {
      if (seat.leased) seat.examples.fetch_add(seat.leased->count, kRelaxed);
      seat.leased.reset();
      pushes_.fetch_add(1, kRelaxed);
      something = true;
    }
    if (!seat.greeted) {
      const auto hello = std::as_bytes(std::span(&seat.hello, 1));
      seat.talk.say(kServer, {.kind = kModeHello}, {&hello, 1});
      seat.greeted = true;
    } else if (!seat.welcomed || seat.wish == Seat::Say::nothing) {
      break;
    } else {
      say_wish(seat);
    }
    something = true;
  }
  return something;
}

void RemoteServer::say_wish(Seat& seat) {
  switch (std::exchange(seat.wish, Seat::Say::nothing)) {
    case Seat::Say::nothing:
      return;
    case Seat::Say::probe: {
      const std::span<const std::byte> probe(&kProbeByte, 1);
      seat.talk.say(kServer, {.kind = kProbe}, {&probe, 1});
      seat.probes = true;
      return;
    }
    case Seat::Say::pull:
      seat.talk.say(kServer, {.kind = kModePull}, {});
      seat.asked = true;
      return;
    case Seat::Say::push: {
      const auto values = std::as_bytes(seat.sent);
      const std::uint64_t ticket = seat.leased->ticket;
      seat.talk.say(kServer, {.kind = kModePushPull, .correlation = ticket}, {&values, 1});
      seat.pushing = seat.asked = true;
      return;
    }
  }
}

std::optional<FrameHeader> RemoteServer::hear(Seat& seat) {
  return seat.talk.hear(kServer, [&](const FrameHeader& header) -> std::span<std::byte> {
    std::size_t length = 0;  // that is looked for; nothing has none
    switch (header.kind) {
      case kGrant: {
        const std::span whole(seat.granted.data(), seat.granted.size());
        if (!seat.asked || header.length != whole.size_bytes()) break;
        return std::as_writable_bytes(whole);
      }
      case kModeWelcome:
        length = seat.greeted && !seat.welcomed ? sizeof(ModeWelcome) : 0;
        break;
      case kModeEnd:
        length = seat.welcomed ? sizeof(ModeEnd) : 0;
        break;
      case kProbe:
        length = seat.probes ? 1 : 0;
        break;
    }
    if (length == 0 || header.length != length) {
      throw Error("a policy server has said something else than was asked");
    }
    return std::span(seat.small).first(length);
  });
}

void RemoteServer::understand(Seat& seat, const FrameHeader& header) {
  switch (header.kind) {
    case kModeWelcome:
      return welcome(seat);
    case kProbe:
      seat.probes = false;
      return;
    case kModeEnd:
      seat.ended = true;
      seat.asked = false;
      return;
    default:
      break;
  }
  GrantHead head;
  std::memcpy(&head, seat.granted.data(), sizeof head);
  if (head.ticket != header.correlation || head.count > seat.welcome.largest_lease) {
    return lose(seat, &strange_);
  }
  if (head.count == 0) return;  // the end comes
  seat.leased = head;
  seat.granted_now = true;
  seat.asked = false;
  grants_.fetch_add(1, kRelaxed);
}

void RemoteServer::welcome(Seat& seat) {
  ModeWelcome said;
  std::memcpy(&said, seat.small.data(), sizeof said);
  if (said.dimension != dimension_) {
    throw Error("the policy server has " + std::to_string(said.dimension) +
                " parameters, and the model has " + std::to_string(dimension_) +
                "; give both the same model");
  }
  if (seat.known && said.boot != seat.welcome.boot) {
    throw Error(
        "the policy server was started again, and knows nothing of this run any more; start the "
        "run again");
  }
  seat.welcome = said;
  seat.known = seat.welcomed = true;
}

void RemoteServer::lose(Seat& seat, std::atomic<std::uint64_t>* why) {
  cut_.fetch_add(1, kRelaxed);
  if (why) why->fetch_add(1, kRelaxed);
  seat.talk.drop(kServer);
  seat.quiet = now();
  forget(seat);
}

void RemoteServer::forget(Seat& seat) {
  if (seat.wish == Seat::Say::push || seat.pushing) {
    if (seat.leased) left_out_.fetch_add(seat.leased->count, kRelaxed);
  }
  seat.leased.reset();
  seat.greeted = seat.welcomed = seat.probes = false;
  seat.pushing = seat.asked = seat.granted_now = false;
  seat.wish = Seat::Say::pull;
}

void RemoteServer::be_patient(Seat& seat) {
  const double time = now(), silent = time - seat.quiet;
  const bool despairs = time - seat.heard > 2 * patience_;
  if (silent < patience_ / 8 && !despairs) return;
  seat.talk.count();
  const Traffic traffic = seat.talk.traffic().own();
  const std::uint64_t bytes = traffic.in + traffic.out;
  if (std::exchange(seat.bytes, bytes) != bytes && seat.welcomed) {  // a large frame is on its way
    seat.heard = seat.quiet = time;
    return;
  }
  if (despairs) {
    throw Error("a policy server has said nothing for " + in_seconds(time - seat.heard) +
                ", or lets this worker in no more; see what became of it, or be more patient");
  }
  if (!seat.talk.has(kServer)) return;
  if (silent > patience_) return lose(seat, &hung_);
  const bool waits = seat.welcomed && seat.wish == Seat::Say::nothing && !seat.pushing;
  if (waits && !seat.probes && silent > patience_ / 4) seat.wish = Seat::Say::probe;
}

}  // namespace leashed
