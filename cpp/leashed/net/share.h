// Puts two connected sides that are on one host onto memory that both have.
#pragma once

#include <cstdint>

#include "leashed/net/connection.h"

namespace leashed {

enum class Transport {
  tcp,  // over the socket
  shm,  // through shared memory, or not at all
  any,  // through shared memory where both are on one host
};

// The two sides: it does not matter which is which.
enum class Role { offers, accepts };

// Both sides call it at once, on a connection that is authenticated and carries nothing else
// meanwhile: whether its frames go through shared memory from now on, the same on both. Frames of
// that kind, of kShareFrame bytes, must be allowed until then. Where a side asks for `shm` and it
// is not to be had, or the other asks for `tcp`, throws Error on both; the connection can be used
// still.
//
// That they are on one host is proven: one makes memory with a secret in it and names it by its
// process and descriptor; the other opens that, finds the secret, and writes another there, which
// it sends back as well. Only processes of one user can do it. What stands under that name on
// another host, or in another container, does not hold the secret.
bool share(Connection& connection, std::uint16_t kind, Role role, Transport wish,
           const Deadline& deadline);

inline constexpr std::uint64_t kShareFrame = 32;

}  // namespace leashed
