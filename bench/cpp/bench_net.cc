// Frames between two processes, over TCP loopback and through shared memory, beside raw sockets in
// the same turns: large blocks pushed and pulled, and small requests there and back.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/net/share.h"
#include "loopback.h"
#include "processors.h"

using namespace leashed;

namespace {

constexpr std::uint64_t kLimits[] = {1 << 20, std::uint64_t{1} << 28};
constexpr std::size_t kSmall = 64;

void send_all(int socket, const std::byte* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t n = send(socket, bytes, size, MSG_NOSIGNAL);
    need(n > 0, "send");
    bytes += n;
    size -= static_cast<std::size_t>(n);
  }
}

// False at the end.
bool receive_all(int socket, std::byte* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t n = recv(socket, bytes, size, 0);
    if (n <= 0) return false;
    bytes += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

// What is asked of the other process: take a block and say so, or send one. The rest is the size.
struct Request {
  std::uint64_t pull, size;
  std::byte rest[kSmall - 16];
};

void serve_raw(int socket, std::vector<std::byte>& block) {
  for (Request request;
       receive_all(socket, reinterpret_cast<std::byte*>(&request), sizeof request);) {
    if (!request.pull) receive_all(socket, block.data(), request.size);
    send_all(socket, block.data(), request.pull ? request.size : 1);
  }
}

void serve_frames(int socket, Transport way, std::vector<std::byte>& block) {
  Connection connection(socket, kLimits, false);
  share(connection, 0, Role::accepts, way, {});
  Request request;
  const auto place = [&](const FrameHeader& header) {
    return header.kind == 0 ? std::as_writable_bytes(std::span(&request, 1))
                            : std::span(block).first(header.length);
  };
  try {
    for (;;) {
      connection.receive(place, {});
      if (!request.pull && request.size > 0) connection.receive(place, {});
      const std::span<const std::byte> reply =
          std::span(block).first(request.pull ? request.size : 1);
      connection.send({.kind = 1}, {&reply, 1}, {});
    }
  } catch (const ConnectionError&) {
  }
}

pid_t in_process(std::span<const int> not_its, int processor, const auto& f) {
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child > 0) return child;
  run_on(processor);
  for (const int socket : not_its) close(socket);
  f();
  std::_Exit(0);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// For about so many seconds each kind of work, the other side on that processor.
void measure(double lasting, int processor, int processors) {
  std::vector<std::byte> block(std::size_t{100} << 20, std::byte{1});
  std::vector<int> here;  // a child has those of the children before it too
  std::vector<pid_t> servers;
  const auto begin = [&](const auto& serve) {
    const auto [mine, its] = loopback();
    here.push_back(mine);
    servers.push_back(in_process(here, processor, [&, its = its] { serve(its); }));
    close(its);
    return mine;
  };
  const auto begin_frames = [&](Transport way) {
    return begin([&](int socket) { serve_frames(socket, way, block); });
  };
  const int raw = begin([&](int socket) { serve_raw(socket, block); });
  Connection over_socket(begin_frames(Transport::tcp), kLimits, false);
  Connection over_memory(begin_frames(Transport::shm), kLimits, false);
  share(over_socket, 0, Role::offers, Transport::tcp, {});
  share(over_memory, 0, Role::offers, Transport::shm, {});

  const auto raw_turn = [&](Request request) {
    send_all(raw, reinterpret_cast<const std::byte*>(&request), sizeof request);
    if (!request.pull) send_all(raw, block.data(), request.size);
    need(receive_all(raw, block.data(), request.pull ? request.size : 1), "the other side");
  };
  const auto frame_turn = [&](Connection& connection, Request request) {
    const std::span<const std::byte> head = std::as_bytes(std::span(&request, 1));
    connection.send({.kind = 0}, {&head, 1}, {});
    const std::span<const std::byte> body = std::span(block).first(request.size);
    if (!request.pull && request.size > 0) connection.send({.kind = 1}, {&body, 1}, {});
    const auto place = [&](const FrameHeader& header) {
      return std::span(block).first(header.length);
    };
    connection.receive(place, {});
  };
  struct Work {
    const char* name;
    Request request;
    int calls;
  };
  for (const Work& work :
       {Work{"round trip, 64 bytes", {1, kSmall, {}}, 400},
        Work{"push, 540 KB", {0, 540'000, {}}, 40}, Work{"pull, 540 KB", {1, 540'000, {}}, 40},
        Work{"push, 100 MB", {0, 100'000'000, {}}, 1},
        Work{"pull, 100 MB", {1, 100'000'000, {}}, 1}}) {
    struct Contender {
      std::function<void()> turn;
      std::vector<double> seconds{};
    };
    Contender contenders[] = {{[&] { raw_turn(work.request); }},
                              {[&] { frame_turn(over_socket, work.request); }},
                              {[&] { frame_turn(over_memory, work.request); }}};
    // Memory that the processes shared becomes each one's own.
    for (const Contender& contender : contenders) contender.turn();
    const double end = now() + lasting;
    for (std::size_t turn = 0; turn < 3 || now() < end; ++turn) {
      for (std::size_t i = 0; i < 3; ++i) {
        Contender& contender = contenders[(turn + i) % 3];
        const double begin = now();
        for (int call = 0; call < work.calls; ++call) contender.turn();
        contender.seconds.push_back((now() - begin) / work.calls);
      }
    }
    const auto ratio = [&](const Contender& contender) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < contender.seconds.size(); ++i) {
        ratios.push_back(contender.seconds[i] / contenders[0].seconds[i]);
      }
      return median(ratios);
    };
    std::printf(
        "{\"figure\": \"net\", \"work\": \"%s\", \"processors\": %d, \"raw_seconds\": %g, "
        "\"seconds\": %g, \"ratio\": %g, \"shared_seconds\": %g, \"shared_ratio\": %g}\n",
        work.name, processors, median(contenders[0].seconds), median(contenders[1].seconds),
        ratio(contenders[1]), median(contenders[2].seconds), ratio(contenders[2]));
    std::fflush(stdout);  // before the next fork
  }
  for (const int socket : here) shutdown(socket, SHUT_RDWR);
  close(raw);
  for (const pid_t server : servers) waitpid(server, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const double lasting = argc > 1 ? std::atof(argv[1]) : 1;
  const std::vector<int> processors = allowed_processors();
  run_on(processors[0]);
  measure(lasting, processors[0], 1);
  if (processors.size() > 1) measure(lasting, processors[1], 2);
  return 0;
}
