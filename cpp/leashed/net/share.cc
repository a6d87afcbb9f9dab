#include "leashed/net/share.h"

#include <unistd.h>

#include <memory>
#include <span>

namespace leashed {
namespace {

// What each tells the other.
struct Word {
  Secret secret;         // of the memory; the other's, where it has been opened
  std::int32_t process;  // where and under which number it is open; 0 and 0 without
  std::int32_t file;
  std::uint32_t wish;
  std::uint32_t opened;
};
static_assert(sizeof(Word) == kShareFrame);

void tell(Connection& connection, std::uint16_t kind, const Word& word, const Deadline& deadline) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&word, 1));
  connection.send({.kind = kind}, {&bytes, 1}, deadline);
}

Word hear(Connection& connection, std::uint16_t kind, const Deadline& deadline) {
  Word word{};
  const auto place = [&](const FrameHeader& header) {
    if (header.kind != kind || header.length != sizeof word) {
      throw ConnectionError(ConnectionError::Reason::refused,
                            "the other side does not agree on a transport");
    }
    return std::as_writable_bytes(std::span(&word, 1));
  };
  connection.receive(place, deadline);
  return word;
}

// What comes of both wishes and of whether the memory is to be had.
bool agreed(Transport mine, std::uint32_t its, bool opened) {
  const auto other = static_cast<Transport>(its);
  if (opened) return true;
  if (mine != Transport::shm && other != Transport::shm) return false;
  if (mine == Transport::tcp || other == Transport::tcp) {
    throw Error("one side asks for shared memory, the other for TCP");
  }
  throw Error(
      "shared memory is asked for, but both sides are not processes of one user on one host");
}

// What a side has of the memory; where it cannot, none, as if they were on two hosts.
std::shared_ptr<SharedRings> had(const auto& get) {
  try {
    return get();
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

bool share(Connection& connection, std::uint16_t kind, Role role, Transport wish,
           const Deadline& deadline) {
  Word word{.secret = draw_secret(),
            .process = 0,
            .file = 0,
            .wish = static_cast<std::uint32_t>(wish),
            .opened = 0};
  if (role == Role::offers) {
    std::shared_ptr<SharedRings> rings;
    if (wish != Transport::tcp) rings = had([&] { return SharedRings::create(word.secret); });
    if (rings) {
      word.process = getpid();
      word.file = rings->file();
    }
    tell(connection, kind, word, deadline);
    const Word answer = hear(connection, kind, deadline);
    if (!agreed(wish, answer.wish, answer.opened != 0)) return false;
    if (!rings || !rings->answered(answer.secret)) {
      throw ConnectionError(ConnectionError::Reason::refused,
                            "the other side has not opened the memory that it was offered");
    }
    rings->close_file();
    connection.go_through(rings, true);
    return true;
  }
  const Word offer = hear(connection, kind, deadline);
  std::shared_ptr<SharedRings> rings;
  if (wish != Transport::tcp) {
    rings = had([&] { return SharedRings::open(offer.process, offer.file, offer.secret); });
  }
  if (rings) {
    rings->answer(word.secret);
    word.opened = 1;
  }
  tell(connection, kind, word, deadline);
  if (!agreed(wish, offer.wish, rings != nullptr)) return false;
  connection.go_through(rings, false);
  return true;
}

}  // namespace leashed
