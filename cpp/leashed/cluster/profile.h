// What an exchange costs a sync server, so that fragments can be shared out by it.
#pragma once

#include <cstddef>

#include "leashed/net/share.h"

namespace leashed {

// Seconds of a server's processor time for one exchange of a fragment of so many floats: to receive
// it, to interpolate and to answer. From some hundreds between a server and a client that are made
// for it, over the two ends of a connection, which are taken over.
double profile_exchange(int here, int there, Transport wish, std::size_t floats);

}  // namespace leashed
