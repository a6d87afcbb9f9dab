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

constexpr std::size_t kServer = 0;  // of a lane's conversation: the first, who leads
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
                           const Settings& settings, const ServedTables* tables)
    : stop_(stop),
      batches_(batches),
      rule_(rule),
      models_(models),
      dimension_(dimension),
      patience_(settings.patience),
      updates_(settings.updates),
      shards_(settings.shards.servers() > 0 ? settings.shards : ModeShards::whole(dimension)) {
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    Seat& seat = seats_.emplace_back(shards_);
    seat.hello = {settings.run, settings.client + lane, settings.life, settings.terms};
    seat.granted = AlignedArray<float>(kHeadFloats + shards_.size(kServer));
    if (tables) seat.rows.emplace(*tables, true);
    if (settings.replica) {
      seat.rounds = std::make_unique<LaneRounds>(*settings.replica, patience_, tables != nullptr);
    }
    if (shards_.servers() == 1) continue;
    seat.whole = AlignedArray<float>(dimension);
    seat.first = AlignedArray<float>(shards_.size(kServer));
  }
}

void RemoteServer::adopt(std::size_t lane, int socket, bool checked, Transport wish,
                         std::size_t server) {
  Conversation& talk = seats_.at(lane).talk;  // before the socket is taken over
  if (server >= shards_.servers()) throw Error("a connection to a server that there is not");
  talk.adopt(server, connected(socket, kModeLimits, checked, wish, Role::offers));
}

bool RemoteServer::missing(std::size_t lane, std::size_t server) const {
  const Seat& seat = seats_.at(lane);
  return !seat.done.load(kRelaxed) && server < shards_.servers() && !seat.talk.there(server);
}

RemoteServer::Counters RemoteServer::counters() const {
  std::uint64_t of_all = 0;
  WireSum wire;
  for (const Seat& seat : seats_) {
    of_all += seat.examples.load(kRelaxed);
    wire.add(seat.talk.traffic());
    if (seat.rounds) wire.add(seat.rounds->traffic());
  }
  return {grants_.load(kRelaxed),
          pushes_.load(kRelaxed),
          cut_.load(kRelaxed),
          hung_.load(kRelaxed),
          strange_.load(kRelaxed),
          left_out_.load(kRelaxed),
          split_.load(kRelaxed),
          of_all,
          lookups_.load(kRelaxed),
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
  const auto in_round = [&] { return seat.rounds && seat.rounds->to_compute(); };
  const auto all = [&] {
    const bool granted = seat.granted_now && seat.parts.there();
    return granted || in_round() || (seat.ended && seat.parts.left());
  };
  while (true) {
    if (!go_on(seat, all)) return false;
    seat.in_round = !seat.granted_now && in_round();
    if (seat.in_round) {
      seat.rounds->show(lane);
    } else if (seat.ended) {
      const bool by_updates = seat.updates >= updates_;
      return stop_.finish(by_updates ? StopReason::updates : StopReason::epochs), false;
    } else {
      seat.granted_now = false;
      const GrantHead& head = *seat.leased;
      lane.lease = {head.ticket, head.number, head.first, head.count, head.token};
    }
    if (!seat.rows || look_up(lane, seat)) break;
    if (stop_.stopped()) return false;  // a round waits for as long as it does
  }
  seat.in_round ? seat.rounds->show(lane) : take(lane, seat);
  return true;
}

bool RemoteServer::has_lease(const Seat& seat) {
  return seat.in_round ? !seat.leased && seat.rounds->shows() : seat.leased.has_value();
}

void RemoteServer::take(Lane& lane, Seat& seat) {
  const GrantHead& head = *seat.leased;
  const float* values = seat.granted.data() + kHeadFloats;
  const bool own = rule_.model == WorkerRule::Model::own;
  lane.pulled = {head.n, head.c, head.t, values};
  lane.taken = false;
  lane.done = 0;
  for (std::size_t s = shards_.servers(); s-- > 0 && shards_.servers() > 1;) {
    const PulledModel part = s > 0 ? seat.parts.pulled(s) : lane.pulled;
    if (own) models_->take(lane.number, part, shards_.sharding.shards[s]);
    if (!own) shards_.scatter(s, part.values, seat.whole.data());
    lane.taken = own;
    values = seat.whole.data();
  }
  lane.pulled.values = values;
  lane.theta = own ? (*models_)[lane.number] : values;
}

bool RemoteServer::look_up(Lane& lane, Seat& seat) {
  // (Rows of a lease that it has no more, or anew, come first.)
  if (!go_on(seat, [&] { return !seat.looks_up; }) || !has_lease(seat)) return false;
  if (!fill(lane, lane.lease.first, lane.lease.count)) return false;
  seat.rows->combine(lane.batch.view);
  seat.wish = Seat::Say::lookup;
  seat.looks_up = true;
  seat.lookup = lane.lease.ticket;
  seat.parts.look_up(*seat.rows, seat.in_round ? lane.lease.ticket : 0);
  const auto have_come = [&] { return !seat.looks_up && seat.parts.looked_up(); };
  return go_on(seat, have_come) && has_lease(seat);
}

void RemoteServer::read(Lane& lane, std::uint64_t first, std::size_t count) {
  std::optional<AskedRows>& rows = seats_[lane.number].rows;
  if (rows) return rows->show(lane.batch.view);
  fill(lane, first, count);
}

// Whoever sends rows sends a lease's until all batches of the run are done, by others too.
bool RemoteServer::fill(Lane& lane, std::uint64_t first, std::size_t count) {
  batches_.fill_span(first, count, lane.batch);
  if (lane.batch.view.size == count) return true;
  if (!stop_.stopped()) stop_.stop(StopReason::epochs);
  return false;
}

bool RemoteServer::step(Lane& lane, bool) {
  models_->step(lane.number, lane.gradient.data());
  return !stop_.stopped();
}

void RemoteServer::push(Lane& lane) {
  Seat& seat = seats_[lane.number];
  if (seat.in_round) {
    give(lane, seat);
    return;
  }
  const bool model = rule_.sends == WorkerRule::Sends::model;
  std::span<const float> values(model ? lane.theta : lane.gradient.data(), dimension_);
  seat.pushed = lane.lease.count;
  if (shards_.servers() > 1 && seat.leased) {
    seat.parts.push(*seat.leased, values.data());
    shards_.gather(kServer, values.data(), seat.first.data());
    values = {seat.first.data(), shards_.size(kServer)};
  }
  seat.sent.assign(1, std::as_bytes(values));
  if (seat.rows) {
    const auto rows = seat.rows->gradients(kServer);
    seat.sent.insert(seat.sent.end(), rows.begin(), rows.end());
  }
  seat.wish = Seat::Say::push;
  seat.computed = lane.lease.ticket;
  go_on(seat, [&] { return seat.wish != Seat::Say::push && !seat.pushing; });
}

// (The memory of gradients of rows is theirs until they have come to all servers; meanwhile it may
// be told of another round.)
void RemoteServer::give(Lane& lane, Seat& seat) {
  const bool elsewhere = seat.rows && shards_.servers() > 1;
  if (elsewhere && !go_on(seat, [&] { return seat.parts.rows_given(); })) return;
  if (!seat.in_round || !has_lease(seat)) return;
  std::span<const AskedRows::Bytes> rows;
  if (seat.rows) rows = seat.rows->gradients(kServer);
  seat.rounds->computed(lane.gradient.data(), rows, elsewhere);
  seat.gives_rows = elsewhere;
  if (elsewhere) seat.parts.give_rows();
  turn(seat);
}

void RemoteServer::leave(Lane& lane) {
  Seat& seat = seats_[lane.number];
  seat.done.store(true, kRelaxed);
  part(seat);
  for (std::size_t s = 0; s < shards_.servers(); ++s) {
    seat.talk.drop(s);
    if (seat.talk.renew(s)) seat.talk.drop(s);
  }
}

template <class Done>
bool RemoteServer::go_on(Seat& seat, const Done& done) {
  seat.heard = seat.quiet = now();
  seat.parts.wait_from(seat.heard);
  seat.talk.count();
  while (!done()) {
    if (stop_.stopped()) return false;
    if (turn(seat)) continue;
    be_patient(seat);
    if (seat.rounds && seat.rounds->sums()) {
      seat.rounds->wait();
      continue;
    }
    seat.connected.clear();
    for (std::size_t s = 0; s < shards_.servers(); ++s) {
      if (seat.talk.has(s)) seat.connected.push_back(s);
    }
    seat.talk.wait(seat.connected, Deadline{});
  }
  return true;
}

bool RemoteServer::turn(Seat& seat) {
  const RemoteParts::Turn others = seat.parts.turn();
  if (others == RemoteParts::Turn::lost) return lose(seat), true;
  bool something = others == RemoteParts::Turn::something;
  if (seat.gives_rows && seat.parts.rows_given()) {
    seat.gives_rows = false;
    seat.rounds->rows_came();
    something = true;
  }
  something = (seat.rounds && seat.rounds->step()) || something;
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
      seat.talk.say(kServer, {.kind = kModeHello, .correlation = seat.computed}, {&hello, 1});
      seat.greeted = true;
    } else if (seat.rounds && seat.welcomed && seat.rounds->say(seat.talk, kServer)) {
      something = true;
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
    case Seat::Say::lookup: {
      const auto ids = seat.rows->lookup(kServer);
      seat.talk.say(kServer, {.kind = kLookup, .correlation = seat.lookup}, {&ids, 1});
      return;
    }
    case Seat::Say::push: {
      const std::uint64_t ticket = seat.leased->ticket;
      seat.talk.say(kServer, {.kind = kModePushPull, .correlation = ticket}, seat.sent);
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
      case kRows: {
        if (!seat.looks_up || header.correlation != seat.lookup) break;
        const std::span<std::byte> rows = seat.rows->place(kServer);
        if (header.length != rows.size()) break;
        return rows;
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
      default:
        if (seat.rounds && seat.welcomed) return seat.rounds->place(header);
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
    case kRows:
      seat.looks_up = false;
      lookups_.fetch_add(1, kRelaxed);
      return;
    case kModeEnd: {
      ModeEnd said;
      std::memcpy(&said, seat.small.data(), sizeof said);
      seat.updates = said.updates;
      seat.ended = true;
      seat.asked = false;
      seat.parts.leave();
      return;
    }
    case kGrant:
      break;
    default:
      seat.rounds->understand(header);
      if (const std::uint64_t counted = seat.rounds->counted()) {
        seat.examples.fetch_add(counted, kRelaxed);
        pushes_.fetch_add(1, kRelaxed);
      }
      return;
  }
  GrantHead head;
  std::memcpy(&head, seat.granted.data(), sizeof head);
  if (head.ticket != header.correlation || head.count > seat.welcome.largest_lease) {
    return lose(seat, &strange_);
  }
  if (head.count == 0) return;             // the end comes
  if (seat.rounds) seat.rounds->forget();  // the server sums now
  seat.gives_rows = false;
  seat.leased = head;
  seat.granted_now = true;
  seat.asked = false;
  seat.parts.granted(head);
  grants_.fetch_add(1, kRelaxed);
}

void RemoteServer::welcome(Seat& seat) {
  ModeWelcome said;
  std::memcpy(&said, seat.small.data(), sizeof said);
  if (said.dimension != shards_.size(kServer)) {
    throw Error("the policy server has " + std::to_string(said.dimension) +
                " parameters, and the model has " + std::to_string(shards_.size(kServer)) +
                (shards_.servers() == 1 ? "; give both the same model"
                                        : " there; give both the same model and shards"));
  }
  if (seat.known && said.boot != seat.welcome.boot) {
    throw Error(
        "the policy server was started again, and knows nothing of this run any more; start the "
        "run again");
  }
  if (seat.rounds) seat.rounds->welcome(said);
  seat.welcome = said;
  seat.known = seat.welcomed = true;
  seat.parts.welcomed(seat.hello, said);
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
  const bool whole = seat.wish != Seat::Say::push && !seat.pushing;
  if (seat.parts.forget() && whole) split_.fetch_add(seat.pushed, kRelaxed);
  if (seat.rounds) seat.rounds->forget();
  seat.in_round = seat.gives_rows = false;
  seat.leased.reset();
  seat.greeted = seat.welcomed = seat.probes = false;
  seat.pushing = seat.asked = seat.granted_now = seat.looks_up = false;
  seat.wish = Seat::Say::pull;
}

void RemoteServer::be_patient(Seat& seat) {
  const double time = now(), silent = time - seat.quiet;
  const bool despairs = time - seat.heard > 2 * patience_;
  if (seat.parts.hung(time, patience_)) return lose(seat, &hung_);
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
