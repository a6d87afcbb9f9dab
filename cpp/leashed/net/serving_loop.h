// A thread that serves connections by what a service answers. Nobody waits for anybody else: each
// has its turn, and of who does not read his answer nothing more is taken. A connection belongs to
// one loop; a server with several has a service for each, and a loop hands a connection over to
// another where its service says so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "leashed/base/descriptor.h"
#include "leashed/net/service.h"
#include "leashed/net/wire_count.h"

namespace leashed {

class Spin;

class ServingLoop {
 public:
  // The loop of each number that a service tells; asked while there are connections.
  using Others = std::function<ServingLoop&(std::size_t)>;
  // The service is called by the loop's thread alone, and stays until the loop has ended.
  explicit ServingLoop(Service& service, Others others = nullptr);
  // Closes all connections, of which the service is not told.
  ~ServingLoop();
  // Serves nobody any more, and calls nothing: of several that hand connections over, all end
  // before one is destroyed.
  void end();

  // Serves the connection that is made so, from any thread. Making it is the last that may throw.
  void adopt(const std::function<std::unique_ptr<Connection>()>& make);

  // Calls f while no frame is under way in the service, from any thread; within f also again. The
  // loop goes on when it is over, whether it throws or not.
  void quiet(const std::function<void()>& f);

  struct Counters {
    Traffic traffic;
    std::optional<Traffic> kernel;  // as WireCount has it
    double seconds = 0;             // of processor time, of the thread that serves; not of waiting
    std::uint64_t connections = 0;  // now
    std::uint64_t refused = 0;      // closed for what came over them, or for want of memory
  };
  Counters counters() const;

 private:
  struct Link;
  class Letters;
  void serve();
  void arrive(std::list<std::unique_ptr<Link>>& one);
  // Gives the other loop the connection, with a frame that is complete.
  void hand_over(Link& link, ServingLoop& to, const FrameHeader& header);
  // Between two frames, for as long as somebody wants it.
  void hold();
  // Those that arrive have their first turn; `turns` and `next` get room for all.
  void welcome(std::vector<Link*>& turns, std::vector<Link*>& next);
  // False where the connection is of no more use.
  bool go_on(Link& link);
  // Sends what waits to go to it; whether all has gone.
  static bool flush(Link& link);
  // Waits for something to do, but no longer than to the time that the service is to be woken at.
  template <class Look>
  void wait(const Look& look, Spin& spin);
  void end(const Link& link);
  void wake();
  double seconds() const;

  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  Service& service_;
  const Others others_;
  const Descriptor poll_, wake_;  // epoll, eventfd
  std::mutex mutex_;
  std::list<std::unique_ptr<Link>> arriving_;  // under the lock
  // Who wants the loop to hold. Relaxed: the mutex orders what they do; the loop looks at it once
  // for all turns.
  std::atomic<int> wanted_{0};
  std::mutex edge_mutex_;
  std::condition_variable edge_;
  // Under that lock.
  bool held_ = false;
  std::thread::id holder_;  // who has it
  // The serving thread's own.
  std::unordered_map<Peer, std::unique_ptr<Link>> links_;
  Peer last_ = 0;
  std::vector<Link*> posted_;  // that have a turn because something was sent to them
  std::int64_t wake_at_ = kNever;
  // Relaxed: counts for whoever looks on; they hand nothing over.
  std::atomic<std::uint64_t> connections_{0}, refused_{0};
  std::atomic<std::int64_t> waited_{0};  // nanoseconds of processor time
  WireCount traffic_;
  std::atomic<bool> ended_{false};  // relaxed: the eventfd's write and read order it
  std::jthread thread_;
};

}  // namespace leashed
