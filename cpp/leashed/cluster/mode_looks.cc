#include "leashed/cluster/mode_looks.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "leashed/base/error.h"

namespace leashed {

namespace {

constexpr std::size_t kLookHeadFloats = sizeof(ModeLooked) / sizeof(float);

}  // namespace

ModeLooks::ModeLooks(const ModeHello& hello, const ModeShards& shards, std::size_t dimension)
    : hello_(hello),
      shards_(shards),
      talk_(shards.servers()),
      parts_(shards.servers()),
      theta_(dimension) {
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    parts_[s].coming = AlignedArray<float>(kLookHeadFloats + shards.size(s));
  }
}

void ModeLooks::begin(const float* theta) { std::copy_n(theta, theta_.size(), theta_.data()); }

void ModeLooks::look() {
  for (Part& part : parts_) part.asked = part.there = part.reading = part.read = false;
  ++reads_;
}

bool ModeLooks::turn() {
  reads_rows_ = false;
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    Part& part = parts_[s];
    try {
      if (talk_.renew(s)) part.asked = false;
      if (talk_.has(s) && !part.there && may_ask(s)) turn_one(s);
    } catch (const ConnectionError&) {
      talk_.drop(s);
      part.asked = false;
    }
  }
  if (!std::ranges::all_of(parts_, &Part::there)) return false;
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    shards_.scatter(s, parts_[s].coming.data() + kLookHeadFloats, theta_.data());
  }
  head_ = parts_[0].last;
  return true;
}

void ModeLooks::turn_one(std::size_t server) {
  Part& part = parts_[server];
  if (talk_.free(server) && !std::exchange(part.asked, true)) ask(server);
  const auto header =
      talk_.hear(server, [&](const FrameHeader& head) { return place_stale(server, head); });
  if (header && header->kind == kModeLooked) heard(server);
}

std::span<std::byte> ModeLooks::place_stale(std::size_t server, const FrameHeader& head) {
  Part& part = parts_[server];
  if (head.kind == kRows) {
    part.stale.resize(head.length);
    return part.stale;
  }
  const std::span whole(part.coming.data(), part.coming.size());
  if (head.kind != kModeLooked || head.length != whole.size_bytes()) {
    throw Error("the policy server has another model than this trainer; give both the same");
  }
  return std::as_writable_bytes(whole);
}

bool ModeLooks::turn(AskedRows& rows) {
  reads_rows_ = true;
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    Part& part = parts_[s];
    try {
      if (talk_.renew(s)) part.reading = false;
      if (talk_.has(s) && !part.read) read_one(s, rows);
    } catch (const ConnectionError&) {
      talk_.drop(s);
      part.reading = false;
    }
  }
  return std::ranges::all_of(parts_, &Part::read);
}

void ModeLooks::read_one(std::size_t server, AskedRows& rows) {
  Part& part = parts_[server];
  const auto is_it = [&](const FrameHeader& head) {
    return head.kind == kRows && head.correlation == reads_;
  };
  if (talk_.free(server) && !std::exchange(part.reading, true)) {
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&hello_, 1)),
                                                rows.lookup(server)};
    talk_.say(server, {.kind = kModeRead, .correlation = reads_}, parts);
    talk_.free(server);
  }
  const auto header = talk_.hear(server, [&](const FrameHeader& head) -> std::span<std::byte> {
    if (!is_it(head)) return place_stale(server, head);
    const std::span<std::byte> place = rows.place(server);
    if (head.length != place.size()) {
      throw Error("the policy server has other tables than this trainer");
    }
    return place;
  });
  part.read = header && is_it(*header);
}

void ModeLooks::forsake() {
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    if (talk_.has(s)) talk_.keep(s);
  }
}

RowPublication ModeLooks::rows() const {
  RowPublication sum;
  for (const Part& part : parts_) sum.add(part.last.rows);
  return sum;
}

void ModeLooks::ask(std::size_t server) {
  if (server == 0) {
    const auto hello = std::as_bytes(std::span(&hello_, 1));
    talk_.say(server, {.kind = kModeLook}, {&hello, 1});
  } else {
    const PartLook look{hello_.run, hello_.terms, parts_[0].last.position};
    const auto bytes = std::as_bytes(std::span(&look, 1));
    talk_.say(server, {.kind = kPartLook}, {&bytes, 1});
    if (!talk_.free(server)) talk_.keep(server);
  }
  talk_.free(server);
}

void ModeLooks::heard(std::size_t server) {
  Part& part = parts_[server];
  ModeLooked looked;
  std::memcpy(static_cast<void*>(&looked), part.coming.data(), sizeof looked);
  if (part.last.boot != 0 && looked.boot != part.last.boot) {
    const std::string which = server == 0 ? "the policy server" : "a policy server";
    throw Error(which +
                " was started again, and knows nothing of this run any more; start the run again");
  }
  part.last = looked;
  part.there = true;
  part.asked = false;
}

void ModeLooks::wait() {
  talk_.count();
  connected_.clear();
  for (std::size_t s = 0; s < parts_.size(); ++s) {
    const bool wanted = reads_rows_ ? !parts_[s].read : !parts_[s].there && may_ask(s);
    if (talk_.has(s) && wanted) connected_.push_back(s);
  }
  talk_.wait(connected_, Deadline{});
}

}  // namespace leashed
