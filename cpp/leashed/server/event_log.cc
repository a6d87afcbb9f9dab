#include "leashed/server/event_log.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "leashed/base/crc32c.h"
#include "leashed/base/error.h"

namespace leashed {

using modes::Event;
using modes::Node;

static_assert(static_cast<unsigned>(Event::Kind::wake) < 7);

namespace {

std::uint32_t crc_of(const BlockHead& head, const std::byte* bytes) {
  const std::size_t numbers = sizeof head.first + sizeof head.lines + sizeof head.size;
  return crc32c(bytes, head.size, crc32c(&head, numbers));
}

[[noreturn]] void damaged() {
  throw Error("a block of the event log is damaged: a byte of it has changed");
}

// A block's bytes, one after the other.
class BlockBytes {
 public:
  explicit BlockBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool more() const { return place_ < bytes_.size(); }
  std::uint8_t byte() {
    if (!more()) damaged();
    return std::to_integer<std::uint8_t>(bytes_[place_++]);
  }
  std::uint64_t number() {
    const auto all = take_varint([this] { return byte(); });
    if (!all) damaged();
    return *all;
  }

 private:
  const std::span<const std::byte> bytes_;
  std::size_t place_ = 0;
};

}  // namespace

std::byte* LineWriter::put(std::byte* to, const LogLine& line) {
  const Event& event = line.event;
  const bool note = line.note != LogLine::Note::none;
  const unsigned kind = note ? LineReader::kNote : static_cast<unsigned>(event.kind);
  const Node more = note ? modes::kMostNodes * (static_cast<Node>(line.note) - 1) : 0;
  const Node node = event.node + more;
  *to++ = static_cast<std::byte>(kind | std::min(node, Node{LineReader::kFar}) << 3);
  if (node >= LineReader::kFar) to = put_varint(to, node - LineReader::kFar);
  if (LineReader::counts(line.note)) return put_varint(to, event.ticket);
  if (note && line.note != LogLine::Note::summed) return to;
  const auto ns = static_cast<std::uint64_t>(line.at.ns);
  to = put_varint(to, ns - std::exchange(last_.ns, ns));
  if (event.kind == Event::Kind::push) {
    const std::uint64_t ticket = std::exchange(last_.ticket, event.ticket);
    const std::uint64_t version = std::exchange(last_.version, event.version);
    to = put_varint(to, LineReader::zigzag(event.ticket - ticket));
    to = put_varint(to, LineReader::zigzag(event.version - version));
  }
  if (event.kind == Event::Kind::data_end) to = put_varint(to, event.ticket);
  return event.kind == Event::Kind::command ? put_varint(to, event.argument) : to;
}

std::uint64_t EventLog::append(const LogLine& line) {
  if (open_.empty()) open_.resize(sizeof(BlockHead));
  std::byte bytes[kLongestLine];
  const std::byte* const end = writer_.put(bytes, line);
  open_.insert(open_.end(), static_cast<const std::byte*>(bytes), end);
  const std::uint64_t number = next_++;
  if (open_.size() + kLongestLine > sizeof(BlockHead) + kMostBlock) close();
  return number;
}

void EventLog::close() {
  if (open_.empty()) return;
  BlockHead head{closed_, static_cast<std::uint32_t>(next_ - closed_),
                 static_cast<std::uint32_t>(open_.size() - sizeof head), 0, 0};
  head.crc = crc_of(head, open_.data() + sizeof head);
  std::memcpy(open_.data(), &head, sizeof head);
  kept_.push_back({closed_, next_, std::make_shared<const std::vector<std::byte>>(open_)});
  closed_ = next_;
  open_.clear();
  writer_ = {};
}

std::vector<EventLog::Block> EventLog::from(std::uint64_t line) const {
  if (line < first_) {
    throw Error("line " + std::to_string(line) +
                " of the event log is asked for, which begins at " + std::to_string(first_) +
                " by now; begin from a later snapshot");
  }
  if (line > next_) {
    throw Error("line " + std::to_string(line) + " of the event log is asked for, which has " +
                std::to_string(next_) +
                " so far: who asks has heard another log; begin from this one's snapshot");
  }
  const auto found = std::ranges::upper_bound(kept_, line, {}, &Kept::end);
  std::vector<Block> blocks;
  std::transform(found, kept_.end(), std::back_inserter(blocks),
                 [](const Kept& one) { return one.block; });
  return blocks;
}

void EventLog::forget(std::uint64_t before) {
  while (!kept_.empty() && kept_.front().end <= before) {
    first_ = kept_.front().end;
    kept_.pop_front();
  }
}

std::size_t ReadBlock::read(std::span<const std::byte> bytes) {
  lines.clear();
  BlockHead head;
  if (bytes.size() < sizeof head) return 0;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.size > kMostBlock || head.lines == 0 || head.lines > head.size || head.zero != 0 ||
      head.first > ~std::uint64_t{0} - head.lines) {
    damaged();
  }
  if (bytes.size() - sizeof head < head.size) return 0;
  const auto written = bytes.subspan(sizeof head, head.size);
  if (crc_of(head, written.data()) != head.crc) damaged();
  first = head.first;
  BlockBytes left(written);
  LineReader reader;
  std::int64_t ns = 0;
  for (std::uint32_t i = 0; i < head.lines; ++i) {
    const LogLine line = reader.take(left);
    const bool of_record = line.note != LogLine::Note::none && line.note < LogLine::Note::summed;
    if (of_record || line.event.node >= modes::kMostNodes || line.at.ns < ns) damaged();
    ns = line.at.ns;
    lines.push_back(line);
  }
  if (left.more()) damaged();
  return sizeof head + head.size;
}

}  // namespace leashed
