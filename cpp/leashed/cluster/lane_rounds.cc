#include "leashed/cluster/lane_rounds.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/update/kernels.h"

namespace leashed {
namespace {

[[noreturn]] void throw_strange() {
  throw Error("a policy server has said of a round what is none");
}

}  // namespace

LaneRounds::LaneRounds(const DisciplineContext& context, double patience, bool reads_rows)
    : patience_(patience),
      reads_rows_(reads_rows),
      updater_(context),
      dimension_(context.dimension),
      replica_(kStateFloats + updater_.layout().length()) {}

std::vector<std::uint64_t> LaneRounds::wanted() const {
  const std::lock_guard lock(mutex_);
  return wanted_;
}

void LaneRounds::adopt(std::uint64_t client, std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  arrived_[client] = std::move(connection);
  std::erase(wanted_, client);
}

void LaneRounds::welcome(const ModeWelcome& said) {
  if (reduce_ && said.node == node_ && said.nodes == lives_.size()) return;
  if (said.node >= said.nodes) throw_strange();
  node_ = said.node;
  lives_.assign(said.nodes, 0);
  reduce_.emplace(node_, said.nodes, DirectReduce::Kinds{kReduce, kBroadcast});
}

void LaneRounds::forget() {
  member_.leave();
  summing_ = summed_ = says_rows_ = rows_elsewhere_ = false;
  words_.clear();
  since_ = 0;
}

std::span<std::byte> LaneRounds::place(const FrameHeader& header) {
  switch (header.kind) {
    case kRound:
      if (header.length < sizeof(RoundHead)) throw_strange();
      round_bytes_.resize(header.length);
      return round_bytes_;
    case kRoundWant:
      if (header.length != sizeof small_) throw_strange();
      return std::as_writable_bytes(std::span(&small_, 1));
    case kRoundState:
      if (!member_.to_take() || header.length != replica_.size() * sizeof(float)) throw_strange();
      if (coming_.size() == 0) coming_ = AlignedArray<float>(replica_.size());
      return std::as_writable_bytes(std::span(coming_.data(), coming_.size()));
    default:
      throw_strange();
  }
}

void LaneRounds::understand(const FrameHeader& header) {
  switch (header.kind) {
    case kRound:
      return hear();
    case kRoundWant:
      summing_ = summed_ = false;
      if (member_.send_home(small_.epoch)) apply();
      words_ = {Word::state};
      return;
    default:
      break;
  }
  StateHead head;
  std::memcpy(&head, coming_.data(), sizeof head);
  if (head.epoch != head_.epoch || head.version != head_.version) return;  // of one before
  std::swap(replica_, coming_);
  member_.took(head.epoch);
  at_server_ = head.version;
}

void LaneRounds::hear() {
  RoundHead head;
  std::memcpy(&head, round_bytes_.data(), sizeof head);
  const std::size_t seats = (round_bytes_.size() - sizeof head) / sizeof(RoundSeat);
  if (!reduce_ || head.members != seats || head.giving > head.members ||
      round_bytes_.size() != sizeof head + seats * sizeof(RoundSeat)) {
    throw_strange();
  }
  summing_ = summed_ = false;
  if (head.base != base_) member_.leave();
  base_ = head.base;
  ReducedRound round{.epoch = head.epoch, .version = head.version, .giving = head.giving};
  if (head.ticket != 0) round.ticket = RoundTicket{head.ticket, head.number};
  if (member_.hear(round)) apply();
  says_rows_ = says_rows_ && head.ticket != 0 && member_.to_give();
  head_ = head;
  seats_.resize(seats);
  std::memcpy(seats_.data(), round_bytes_.data() + sizeof head, seats * sizeof(RoundSeat));
  members_.clear();
  for (const RoundSeat& seat : seats_) {
    if (seat.node >= lives_.size()) throw_strange();
    members_.push_back(seat.node);
  }
  words_.clear();
  if (member_.to_take()) words_ = {Word::take};
  since_ = 0;
  connect();
}

// As a server does it (server/holder.h), of the sum that was voted for.
void LaneRounds::apply() {
  float* const buffer = replica_.data() + kStateFloats;
  const std::span<const float> sum = reduce_->sum();
  const GradientPiece whole{sum.data(), 0, dimension_};
  const double scale = updater_.clip_factor(Gradient{&whole, 1});
  updater_.apply_slice(buffer, sum.data(), 0, dimension_,
                       {.t = member_.version() - 1, .scale = scale});
  if (head_.ticket != 0) counted_ += head_.count;
}

bool LaneRounds::connect() {
  bool all = true;
  const std::lock_guard lock(mutex_);
  wanted_.clear();
  const std::size_t own =
      static_cast<std::size_t>(std::ranges::find(members_, node_) - members_.begin());
  for (std::size_t place = 0; place < seats_.size(); ++place) {
    const RoundSeat& seat = seats_[place];
    if (place == own) continue;
    std::uint64_t& life = lives_[seat.node];
    if (life != 0 && life != seat.life) {  // it is another process's by now
      reduce_->drop(seat.node);
      life = 0;
    }
    if (auto found = arrived_.extract(seat.client)) {
      reduce_->adopt(seat.node, std::move(found.mapped()));
      life = seat.life;
    }
    if (reduce_->has(seat.node)) continue;
    if (!DirectReduce::exchange(dimension_, seats_.size(), own, place)) continue;
    all = false;
    if (seat.node > node_) wanted_.push_back(seat.client);
  }
  return all;
}

void LaneRounds::begin() {
  mean_.begin(std::vector<double>(head_.giving, 1.0), head_.giving);
  const auto add = [this](float* sum, std::span<const float* const> vectors, std::size_t begin,
                          std::size_t end) { mean_.add(sum, vectors, begin, end); };
  const bool gives = head_.ticket != 0;
  member_.gave();
  reduce_->begin({.epoch = head_.epoch,
                  .members = members_,
                  .giving = head_.giving,
                  .dimension = dimension_,
                  .add = add},
                 {gradient_, gives ? dimension_ : 0});
  summing_ = true;
}

bool LaneRounds::step() {
  // Who calls has found the connection that is summed over to be of no use, whatever it seems here.
  const auto called_anew = [&] {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        seats_, [&](const RoundSeat& seat) { return arrived_.contains(seat.client); });
  };
  try {
    if (member_.to_give()) {
      if (connect()) return begin(), true;
      if (since_ == 0) since_ = now();
      if (now() - since_ > patience_) {
        throw Error(
            "another worker of the all-reduce is not reached as long as it is waited for; see what "
            "lies between the two, or be more patient");
      }
      return false;
    }
    // (One who gives nothing may be owed what had gone over the connection before.)
    if ((summing_ || summed_) && called_anew()) {
      fail();
      return true;
    }
    if (!summing_ || !reduce_->step()) return false;
  } catch (const NoSum&) {
    fail();
    return true;
  }
  summing_ = false;
  summed_ = true;
  reduce_->count(traffic_);
  member_.summed(head_.epoch, reduce_->checksum());
  vote();
  return true;
}

// (Those that the first has go before the vote, over the same connection.)
void LaneRounds::vote() {
  const auto& ticket = member_.round().ticket;
  if (ticket && !rows_elsewhere_) member_.rows_are_there(*ticket);
  if (const auto vote = member_.vote()) {
    vote_ = {vote->epoch, vote->checksum};
    words_.push_back(Word::vote);
  }
}

void LaneRounds::rows_came() {
  rows_elsewhere_ = false;
  if (summed_) vote();
}

void LaneRounds::wait() {
  try {
    reduce_->wait(Deadline{});
  } catch (const NoSum&) {
    fail();
  }
}

// Nobody is gone, as far as the server has said: it begins the sum again.
void LaneRounds::fail() {
  summing_ = summed_ = false;
  words_ = {Word::again};
}

bool LaneRounds::say(Conversation& talk, std::size_t lane) {
  if (std::exchange(says_rows_, false)) {
    talk.say(lane, {.kind = kRoundRows, .correlation = head_.ticket}, row_gradients_);
    return true;
  }
  if (words_.empty()) return false;
  const Word word = words_.front();
  words_.erase(words_.begin());
  if (word == Word::state) return part(talk, lane), true;
  const RoundEpoch epoch{head_.epoch};
  const bool votes = word == Word::vote;
  const std::size_t size = votes ? sizeof vote_ : sizeof epoch;
  std::memcpy(said_.data(), votes ? static_cast<const void*>(&vote_) : &epoch, size);
  const std::span<const std::byte> said(said_.data(), size);
  const std::uint16_t kind = votes ? kRoundVote : word == Word::take ? kRoundTake : kRoundAgain;
  talk.say(lane, {.kind = kind}, {&said, 1});
  return true;
}

bool LaneRounds::leaves_something() const {
  const std::uint64_t version = member_.version();
  return member_.holds(member_.round().epoch, version) && version != at_server_;
}

void LaneRounds::part(Conversation& talk, std::size_t lane) {
  const StateHead head{head_.epoch, member_.version(), {}};
  std::memcpy(replica_.data(), &head, sizeof head);
  const auto all = std::as_bytes(std::span<const float>(replica_.data(), replica_.size()));
  talk.say(lane, {.kind = kRoundState}, {&all, 1});
  at_server_ = head.version;
}

void LaneRounds::show(Lane& lane) {
  const float* const theta = replica_.data() + kStateFloats;
  shown_ = now_shown();
  lane.lease = {head_.ticket, head_.number, head_.first, head_.count, head_.token};
  lane.pulled = {0, 0, head_.version, theta};
  lane.theta = theta;
  lane.taken = false;
  lane.done = 0;
}

void LaneRounds::computed(const float* gradient, std::span<const std::span<const std::byte>> rows,
                          bool elsewhere) {
  const auto finite = [](const float* values, std::size_t count) {
    return update_kernels().first_not_finite(values, count) == count;
  };
  const auto finite_rows = [&](std::span<const std::byte> part) {
    return finite(reinterpret_cast<const float*>(part.data()), part.size() / sizeof(float));
  };
  if (!finite(gradient, dimension_) || !std::ranges::all_of(rows, finite_rows)) {
    throw Error(
        "a gradient is not finite, and would be in the parameters of all members of the "
        "all-reduce; try a smaller learning rate, or have the policy server sum, which leaves it "
        "out");
  }
  gradient_ = gradient;
  row_gradients_ = rows;
  says_rows_ = reads_rows_;
  rows_elsewhere_ = elsewhere;
  member_.computed({head_.ticket, head_.number});
}

}  // namespace leashed
