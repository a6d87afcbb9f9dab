// DLRM's rows at an embedding server: what one trainer's thread and one server's thread, asking,
// answering, pushing and updating, take beside what has to be done: the same bytes over blocking
// sockets, and the same work on the same tables in one process. In turns; a batch is computed by
// nobody.
//
//   bench_remote_rows <seconds> <tables> <rows> <exponent of Zipf's law> <batch size>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "json_line.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_server.h"
#include "leashed/net/frame.h"
#include "leashed/row_store/local_rows.h"
#include "loopback.h"
#include "turns.h"
#include "zipf.h"

using namespace leashed;

namespace {

constexpr std::size_t kDim = 16, kBatches = 64, kATurn = 16;

struct Batch {
  std::vector<std::vector<std::uint64_t>> ids;  // by feature
  std::vector<IdColumn> columns;
  std::size_t distinct = 0;
};

std::vector<std::shared_ptr<Table>> tables_of(std::size_t tables, std::size_t rows) {
  std::vector<std::shared_ptr<Table>> all;
  for (std::size_t t = 0; t < tables; ++t) {
    Table::Settings settings;
    settings.name = "c" + std::to_string(t);
    settings.number = static_cast<std::uint32_t>(t);
    settings.dim = kDim;
    settings.rows = rows;
    settings.initial = {"normal", {{"sigma", 0.01}}};
    settings.rule = {"adagrad", {{"lr", 0.01}, {"eps", 1e-10}, {"initial_accumulator", 0}}};
    settings.staleness = {"none"};
    all.push_back(std::make_shared<Table>(settings));
  }
  return all;
}

// One worker's batches, as the engine has them: the next is prefetched before one is pulled.
class Worker {
 public:
  Worker(RowStore& store, const std::vector<Batch>& batches)
      : store_(store), batches_(batches), rows_{store.make_batch(), store.make_batch()} {
    ahead(0);
  }
  ~Worker() { store_.leave(0); }

  void operator()() {
    for (std::size_t i = 0; i < kATurn; ++i, ++next_) {
      ahead(next_ + 1);
      BatchView& view = views_[next_ % 2];
      store_.pull(0, view, *rows_[next_ % 2]);
      store_.push(0, *rows_[next_ % 2], {next_});
    }
  }

 private:
  void ahead(std::size_t n) {
    const Batch& batch = batches_[n % batches_.size()];
    views_[n % 2] = {nullptr, {}, batch.ids[0].size()};
    views_[n % 2].columns = batch.columns;
    store_.prefetch(0, views_[n % 2], *rows_[n % 2]);
  }

  RowStore& store_;
  const std::vector<Batch>& batches_;
  std::unique_ptr<BatchRows> rows_[2];
  BatchView views_[2]{};
  std::size_t next_ = 0;
};

void send_all(int socket, const std::byte* from, std::size_t n) {
  while (n > 0) {
    const ssize_t sent = send(socket, from, n, MSG_NOSIGNAL);
    need(sent > 0, "send");
    from += sent;
    n -= static_cast<std::size_t>(sent);
  }
}
bool receive_all(int socket, std::byte* to, std::size_t n) {
  while (n > 0) {
    const ssize_t got = recv(socket, to, n, 0);
    if (got <= 0) return false;
    to += got;
    n -= static_cast<std::size_t>(got);
  }
  return true;
}

// The bytes of the same frames, and nothing done with them.
class Raw {
 public:
  Raw(const std::vector<Batch>& batches, std::size_t tables) : batches_(batches) {
    const auto [one, other] = loopback();
    socket_ = one;
    std::size_t most = 0;
    for (const Batch& batch : batches) {
      most = std::max(most, batch.distinct * kDim * sizeof(float));
      sizes_.push_back({kFrameHeader + 8 + (tables + 1) / 2 * 8 + batch.distinct * 8,
                        kFrameHeader + batch.distinct * kDim * sizeof(float),
                        kFrameHeader + 16 + batch.distinct * kDim * sizeof(float)});
    }
    bytes_.resize(most + 4096);
    server_ = std::jthread([this, socket = other, most] {
      std::vector<std::byte> bytes(most + 4096);
      for (std::size_t n = 0;; ++n) {
        const Sizes& sizes = sizes_[n % sizes_.size()];
        if (!receive_all(socket, bytes.data(), sizes.ids)) break;
        send_all(socket, bytes.data(), sizes.rows);
        if (!receive_all(socket, bytes.data(), sizes.gradients)) break;
        send_all(socket, bytes.data(), kSettledFrame);
      }
      close(socket);
    });
  }
  ~Raw() {
    shutdown(socket_, SHUT_RDWR);
    server_ = {};
    close(socket_);
  }
  void operator()() {
    for (std::size_t i = 0; i < kATurn; ++i, ++next_) {
      const Sizes& sizes = sizes_[next_ % sizes_.size()];
      send_all(socket_, bytes_.data(), sizes.ids);
      if (next_ > 0) receive_all(socket_, bytes_.data(), kSettledFrame);
      receive_all(socket_, bytes_.data(), sizes.rows);
      send_all(socket_, bytes_.data(), sizes.gradients);
    }
  }

 private:
  static constexpr std::size_t kSettledFrame = kFrameHeader + sizeof(Settled);
  struct Sizes {
    std::size_t ids, rows, gradients;
  };
  const std::vector<Batch>& batches_;
  std::vector<Sizes> sizes_;
  std::vector<std::byte> bytes_;
  int socket_ = -1;
  std::size_t next_ = 0;
  std::jthread server_;
};

// A server, and the rows that are there.
struct Remote {
  Remote(std::size_t tables, std::size_t rows, std::size_t look_ahead, Transport transport)
      : placement(std::vector<RowPlacement::PlacedTable>(tables, {false, 0}),
                  RowPlacement::evenly(1)),
        server(tables_of(tables, rows), numbers(tables), placement, 0, 1),
        store(
            {served(tables, rows), numbers(tables), placement, 1, 1, 1, 0, 1, 60, 60, look_ahead}) {
    const auto [one, other] = loopback();
    std::jthread accepts([&, socket = one] { server.adopt(socket, false, transport); });
    store.adopt(0, 0, other, false, transport, 0);
  }
  static std::vector<std::size_t> numbers(std::size_t tables) {
    std::vector<std::size_t> all;
    for (std::size_t t = 0; t < tables; ++t) all.push_back(t);
    return all;
  }
  static std::vector<ServedTable> served(std::size_t tables, std::size_t rows) {
    std::vector<ServedTable> all;
    for (std::size_t t = 0; t < tables; ++t) all.push_back({"c" + std::to_string(t), kDim, rows});
    return all;
  }

  RowPlacement placement;
  RowServer server;
  RemoteRows store;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    return std::fputs("usage: bench_remote_rows <seconds> <tables> <rows> <exponent> <batch>\n",
                      stderr),
           2;
  }
  const auto number = [argv](int i) { return static_cast<std::size_t>(std::atol(argv[i])); };
  const double seconds = std::atof(argv[1]);
  const std::size_t tables = number(2), rows = number(3), size = number(5);
  const bench::Zipf zipf(rows, std::atof(argv[4]));
  std::mt19937_64 random(1);
  std::vector<Batch> batches(kBatches);
  for (Batch& batch : batches) {
    batch.ids.resize(tables);
    for (auto& ids : batch.ids) {
      ids.resize(size);
      for (std::uint64_t& id : ids) id = zipf(random);
      batch.columns.push_back({ids.data()});
      std::vector<std::uint64_t> sorted = ids;
      std::ranges::sort(sorted);
      const auto same = std::ranges::unique(sorted);
      batch.distinct += static_cast<std::size_t>(same.begin() - sorted.begin());
    }
  }
  LocalRows local(tables_of(tables, rows), Remote::numbers(tables), 1, 1, false);
  Remote tcp(tables, rows, 1, Transport::tcp), at_once(tables, rows, 0, Transport::tcp),
      shared(tables, rows, 1, Transport::shm);
  Raw raw(batches, tables);
  Worker in_process(local, batches), over_tcp(tcp.store, batches), waits(at_once.store, batches),
      over_shm(shared.store, batches);
  const std::vector<bench::Work> works = {[&] { raw(); }, [&] { in_process(); },
                                          [&] { over_tcp(); }, [&] { waits(); },
                                          [&] { over_shm(); }};
  constexpr std::size_t kWorks = 5;
  std::vector<double> wall[kWorks], used[kWorks], ratio[kWorks], used_ratio[kWorks];
  for (const bench::Work& work : works) work();
  const double start = now();
  do {
    for (std::size_t w = 0; w < kWorks; ++w) {
      const double begin = now(), cpu = bench::process_seconds();
      works[w]();
      used[w].push_back((bench::process_seconds() - cpu) / (kATurn * size));
      wall[w].push_back((now() - begin) / (kATurn * size));
    }
    for (std::size_t w = 2; w < kWorks; ++w) {
      ratio[w].push_back((wall[0].back() + wall[1].back()) / wall[w].back());
      used_ratio[w].push_back((used[0].back() + used[1].back()) / used[w].back());
    }
  } while (now() - start < seconds);
  constexpr const char* kNames[] = {"raw", "in_process", "tcp", "tcp_no_look_ahead", "shm"};
  for (std::size_t w = 0; w < kWorks; ++w) {
    bench::JsonLine line("remote_rows");
    line.add("work", kNames[w]).add("batch_size", size);
    line.add("examples_per_second", 1 / bench::median(wall[w]));
    line.add("cpu_us_per_example", bench::median(used[w]) * 1e6);
    if (w < 2) continue;
    line.add("of_what_has_to_be_done", bench::median(ratio[w]));
    line.add("of_its_processor_time", bench::median(used_ratio[w]));
  }
}
