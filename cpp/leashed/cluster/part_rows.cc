// Of a policy server behind the first (cluster/part_service.h) the memory for what lanes push, and
// the rows that it has.
#include <cstring>
#include <memory>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/part_service.h"

namespace leashed {

namespace {

constexpr std::size_t kTailFloats = sizeof(PartTail) / sizeof(float);

}  // namespace

std::span<std::byte> PartService::place_part(Link& link, const FrameHeader& header) {
  check_part(link, header);
  return place_values(link, header.length / sizeof(float));
}

std::span<std::byte> PartService::place_values(Link& link, std::size_t floats) {
  if (link.values.size() < floats) {
    const std::size_t before = link.values.size();
    link.values = AlignedArray<float>(rows_ ? floats + floats / 8 : floats);
    bytes_.fetch_add((link.values.size() - before) * sizeof(float), kRelaxed);
  }
  return std::as_writable_bytes(std::span(link.values.data(), floats));
}

void PartService::check_part(const Link& link, const FrameHeader& header) {
  const std::size_t floats = server_.holder().dimension() + kTailFloats + link.rows.floats;
  const bool granted = link.granted && *link.granted == header.correlation;
  const bool there = !rows_ || link.rows.there;
  if (granted && there && header.length == floats * sizeof(float)) return;
  strange_.fetch_add(1, kRelaxed);
  if (!granted) throw Error("a part under another ticket than was granted to it");
  throw Error(there ? "a part of other parameters than this server has"
                    : "a part without the rows that it is of");
}

void PartService::check_lookup(const Link& link, const FrameHeader& header) {
  const bool granted = link.granted && *link.granted == header.correlation;
  if (rows_ && granted && (!link.rows.there || run_.reduces)) return;
  strange_.fetch_add(1, kRelaxed);
  if (!rows_) throw Error("a lookup at a server without rows");
  throw Error(granted ? "a second lookup under one lease"
                      : "a lookup under another ticket than was granted to it");
}

void PartService::look_up(Peer peer, Link& link, const FrameHeader& header) {
  check_lookup(link, header);
  const auto rows = rows_->look_up(link.rows, 0, header.length, true);
  link.rows.ticket = header.correlation;
  lookups_.fetch_add(1, kRelaxed);
  send_rows(peer, link, header.correlation, rows);
}

void PartService::read(Peer peer, Link& link, const FrameHeader& header) {
  ModeHello said;
  if (header.length < sizeof said) throw Error("a hello that is none");
  std::memcpy(&said, link.rows.asked.data(), sizeof said);
  if (said.run != run_.run || said.terms != run_.terms) {
    throw Error("somebody of another run, model, rule or mode reads");
  }
  const auto rows = rows_->look_up(link.rows, sizeof said, header.length, false);
  reads_.fetch_add(1, kRelaxed);
  send_rows(peer, link, header.correlation, rows);
}

void PartService::send_rows(Peer peer, const Link& link, std::uint64_t correlation,
                            std::span<const std::byte> rows) {
  looked_up_.fetch_add(rows_->looked_up(), kRelaxed);
  post_->send(peer, {.kind = kRows, .correlation = correlation}, {}, {&rows, 1}, link.rows.reply);
}

void PartService::take_rows(Link& link, std::size_t before, RowPush& rows) {
  rows_->take(link.rows, link.values.data() + before, rows.keys);
  std::swap(rows.gradients, link.rows.gradients);
  rows_->let_go(link.rows);
}

void PartService::let_go_rows(Link& link, RowPush& rows) {
  std::swap(rows.gradients, link.rows.gradients);
  rows_->let_go(link.rows, rows.keys);
}

}  // namespace leashed
