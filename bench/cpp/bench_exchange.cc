// Exchanges of a whole vector with a sync server in another process over TCP loopback, beside a raw
// loop in the same turns that moves as many bytes both ways: what has come is sent back at once,
// while more is on its way.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "leashed/base/clock.h"
#include "leashed/cluster/server_links.h"
#include "leashed/cluster/sync_server.h"
#include "loopback.h"
#include "processors.h"

using namespace leashed;

namespace {

constexpr std::size_t kPiece = kFragment * sizeof(float);

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Sends back what comes until the other side closes.
void echo(int socket) {
  std::vector<std::byte> piece(kPiece);
  for (ssize_t n = 0; (n = recv(socket, piece.data(), kPiece, 0)) > 0;) {
    for (ssize_t sent = 0; sent < n;) {
      const ssize_t more =
          send(socket, piece.data() + sent, static_cast<std::size_t>(n - sent), MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += more;
    }
  }
}

// All bytes there and back, on a socket that does not block.
void raw_turn(int socket, const std::byte* out, std::byte* in, std::size_t size) {
  for (std::size_t sent = 0, received = 0; received < size;) {
    if (sent < size) {
      const ssize_t n = send(socket, out + sent, size - sent, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<std::size_t>(n);
    }
    const ssize_t n = recv(socket, in + received, size - received, 0);
    need(n != 0, "the other side");
    if (n > 0) {
      received += static_cast<std::size_t>(n);
      continue;
    }
    pollfd waiting{socket, static_cast<short>(sent < size ? POLLIN | POLLOUT : POLLIN), 0};
    poll(&waiting, 1, -1);
  }
}

template <class F>
pid_t in_process(int not_its, int processor, const F& f) {
  const pid_t child = fork();
  need(child >= 0, "fork");
  if (child > 0) return child;
  run_on(processor);
  close(not_its);
  f();
  std::_Exit(0);
}

// For about so many seconds, the other sides on that processor.
void measure(std::size_t bytes, int calls, double lasting, int processor, int processors) {
  const std::size_t d = bytes / sizeof(float), count = fragments_of(d);
  const auto [raw, raw_there] = loopback();
  const pid_t echoing = in_process(raw, processor, [there = raw_there] { echo(there); });
  close(raw_there);
  const auto [framed, framed_there] = loopback();
  const auto [until, until_there] = loopback();
  const pid_t serving =
      in_process(framed, processor, [&, there = framed_there, over = until_there] {
        close(raw);
        close(until);
        std::vector<SyncServer::Holding> holdings;
        for (std::uint32_t f = 0; f < count; ++f) {
          const auto [begin, end] = fragment(f, d);
          holdings.push_back({f, end - begin});
        }
        SyncServer server(holdings);
        server.adopt(there, false);
        char end = 0;
        recv(over, &end, 1, 0);
      });
  close(framed_there);
  close(until_there);
  fcntl(raw, F_SETFL, O_NONBLOCK);

  ServerLinks links(d, std::vector<std::uint32_t>(count, 0), 1, 1);
  links.adopt(0, framed, false);
  std::vector<float> theta(d, 1.0f);
  Covered done, first;
  const auto exchange = [&] {
    done.clear();
    need(links.begin(0), "connection");
    need(links.exchange(theta.data(), 0.5f, false, done, first, Deadline::in(60)), "exchange");
    links.end();
  };
  std::vector<float> back(d);
  const auto there_and_back = [&] {
    raw_turn(raw, reinterpret_cast<const std::byte*>(theta.data()),
             reinterpret_cast<std::byte*>(back.data()), bytes);
  };
  there_and_back();  // memory is touched
  exchange();
  const auto seconds = [&](const auto& f) {
    const double begin = now();
    for (int i = 0; i < calls; ++i) f();
    return (now() - begin) / calls;
  };
  std::vector<double> raws, exchanges, ratios;
  for (const double end = now() + lasting; ratios.size() < 3 || now() < end;) {
    if (ratios.size() % 2 == 0) raws.push_back(seconds(there_and_back));
    exchanges.push_back(seconds(exchange));
    if (ratios.size() % 2 == 1) raws.push_back(seconds(there_and_back));
    ratios.push_back(raws.back() / exchanges.back());
  }
  std::printf(
      "{\"figure\": \"exchange\", \"bytes\": %zu, \"processors\": %d, \"raw_seconds\": %g, "
      "\"seconds\": %g, \"ratio\": %g}\n",
      bytes, processors, median(raws), median(exchanges), median(ratios));
  std::fflush(stdout);  // before the next fork
  shutdown(raw, SHUT_RDWR);
  close(raw);
  close(until);
  for (const pid_t child : {echoing, serving}) waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const double lasting = argc > 1 ? std::atof(argv[1]) : 1;
  const std::vector<int> processors = allowed_processors();
  run_on(processors[0]);
  for (int n = 1; n <= std::min<int>(2, static_cast<int>(processors.size())); ++n) {
    const int other = processors[static_cast<std::size_t>(n - 1)];
    measure(540'000, 40, lasting, other, n);
    measure(100'000'000, 1, lasting, other, n);
  }
  return 0;
}
