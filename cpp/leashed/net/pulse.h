// A sign of life that nobody holds up: who sends the messages of a connection may be kept from it,
// as by an interpreter's lock, for longer than the other side waits for one. A process that is
// stopped is silent.
#pragma once

#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace leashed {

class Pulse {
 public:
  // socket: a connected stream, which stays the caller's, and open until close(). Nobody else sends
  // on it. beat: the message that is the sign of life. longest: seconds after a message, beyond
  // which no more beats go: whoever sends messages is given up.
  Pulse(int socket, std::string_view beat, double longest);
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;
  ~Pulse() { close(); }

  // Sends a whole message, behind what has not gone yet of a beat; from the first on a beat goes
  // whenever nothing has been sent for `again` seconds. False where the system has not taken it
  // within `seconds`: then nothing more goes, not even a beat. True as well where the connection
  // has ended: reading tells that, behind what is unread.
  bool send(std::string_view message, double seconds, double again);
  // No more beats. May be called again.
  void close();

 private:
  void run();
  void flush();

  const int socket_;
  const std::string beat_;
  const double longest_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the lock.
  std::string unsent_;
  double said_ = -std::numeric_limits<double>::infinity(),
         sent_ = 0;  // when there was a message last, and anything
  double again_ = 0;
  bool ended_ = false, closed_ = false;
  std::jthread thread_;
};

}  // namespace leashed
