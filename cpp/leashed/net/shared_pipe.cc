#include "leashed/net/shared_pipe.h"

#include <sys/socket.h>

#include <cerrno>

namespace leashed {

bool SharedPipe::ready(bool to_read, bool to_write) {
  return ended_ || (to_read && !reader_.bytes().empty()) || (to_write && !writer_.room().empty());
}

bool SharedPipe::sleep(bool to_read, bool to_write) {
  wake();
  if (ended_) return false;
  asleep_ = true;
  if ((!to_read || reader_.sleep()) && (!to_write || writer_.sleep())) return true;
  wake();
  return false;
}

void SharedPipe::woken() {
  asleep_ = false;
  reader_.wake();
  writer_.wake();
  // The bells that have come; one read, lest who sends them without end be listened to for ever.
  char bells[256];
  ssize_t n;
  do {
    n = recv(socket_, bells, sizeof bells, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) ended_ = true;
}

// Where there is no room for it the other side has bells enough. Where the other side has ended,
// what it has published before is read first.
void SharedPipe::ring_bell() {
  const char bell = 0;
  ssize_t n;
  do {
    n = send(socket_, &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) ended_ = true;
}

}  // namespace leashed
