#include "leashed/net/pulse.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>

#include "leashed/base/clock.h"
#include "leashed/base/team.h"

namespace leashed {

Pulse::Pulse(int socket, std::string_view beat, double longest)
    : socket_(socket), beat_(beat), longest_(longest), thread_(start_thread([this] { run(); })) {}

bool Pulse::send(std::string_view message, double seconds, double again) {
  const std::lock_guard lock(mutex_);
  if (ended_) return true;
  const double deadline = now() + seconds;
  unsent_ += message;
  for (;;) {
    flush();
    if (ended_ || unsent_.empty()) break;
    const double left = deadline - now();
    ended_ = !(left > 0);
    if (ended_) return false;
    pollfd waiting{socket_, POLLOUT, 0};
    poll(&waiting, 1, static_cast<int>(std::ceil(std::min(left, 1e6) * 1e3)));
  }
  said_ = sent_ = now();
  again_ = again;
  changed_.notify_one();
  return true;
}

void Pulse::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Pulse::run() {
  std::unique_lock lock(mutex_);
  while (!closed_ && !ended_) {
    const double time = now();
    if (time >= said_ + longest_) {
      changed_.wait(lock);
    } else if (const double left = sent_ + again_ - time; left > 0) {
      changed_.wait_for(lock, std::chrono::duration<double>(std::min(left, 1e6)));
    } else {
      if (unsent_.empty()) unsent_ = beat_;
      flush();
      sent_ = now();
    }
  }
}

// What the system takes now.
void Pulse::flush() {
  std::size_t gone = 0;
  while (gone < unsent_.size()) {
    const ssize_t n =
        ::send(socket_, unsent_.data() + gone, unsent_.size() - gone, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      gone += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      ended_ = errno != EAGAIN && errno != EWOULDBLOCK;
      break;
    }
  }
  unsent_.erase(0, gone);
}

}  // namespace leashed
