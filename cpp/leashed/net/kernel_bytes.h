// What the kernel counts of a TCP connection, which owes nothing to what is counted here.
#pragma once

#include <cstdint>
#include <optional>

namespace leashed {

struct Traffic {
  std::uint64_t out = 0, in = 0;  // bytes
};

class KernelBytes {
 public:
  // From what has been written to the socket, and read from it, by now.
  explicit KernelBytes(int socket);
  // Bytes since then that the other side has acknowledged, and that have come from it. Nothing
  // where the socket is no TCP one, or the kernel older than 4.1.
  std::optional<Traffic> count() const;

 private:
  const int socket_;
  std::optional<Traffic> before_;
};

}  // namespace leashed
