#include "leashed/cluster/row_profile.h"

#include <algorithm>
#include <array>
#include <future>
#include <numeric>

#include "leashed/base/clock.h"
#include "leashed/base/descriptor.h"
#include "leashed/base/error.h"
#include "leashed/cluster/remote_rows.h"
#include "leashed/cluster/row_server.h"

namespace leashed {
namespace {

constexpr std::size_t kRounds = 9;     // over all batches, of which the medians are taken
constexpr double kServerSilence = 60;  // seconds

// A trainer's thread, with a batch ahead, for so many rounds over all batches.
class Asker {
 public:
  Asker(RowStore& store, std::size_t tables, std::span<const std::uint64_t> ids,
        std::size_t examples, std::size_t rounds)
      : store_(store),
        rows_{store.make_batch(), store.make_batch()},
        batches_(ids.size() / (tables * examples)),
        all_(batches_ * rounds),
        columns_(ids.size() / examples),
        tables_(tables),
        examples_(examples) {
    for (std::size_t k = 0; k < columns_.size(); ++k) columns_[k].ids = &ids[k * examples];
    ahead();
  }
  ~Asker() { store_.leave(0); }

  void round() {
    for (std::size_t i = 0; i < batches_; ++i, ++done_) {
      ahead();
      store_.pull(0, views_[done_ % 2], *rows_[done_ % 2]);
      store_.push(0, *rows_[done_ % 2], {done_});
    }
  }

 private:
  void ahead() {
    if (next_ == all_) return;
    BatchView& view = views_[next_ % 2];
    view = {nullptr, {}, examples_};
    view.columns = std::span(columns_).subspan(next_ % batches_ * tables_, tables_);
    store_.prefetch(0, view, *rows_[next_ % 2]);
    ++next_;
  }

  RowStore& store_;
  std::unique_ptr<BatchRows> rows_[2];
  std::size_t batches_, all_;
  std::vector<IdColumn> columns_;
  std::size_t tables_, examples_;
  BatchView views_[2]{};
  std::size_t next_ = 0, done_ = 0;  // batches
};

double median(std::array<double, kRounds> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

}  // namespace

RowCosts profile_rows(int here, int there, Transport wish,
                      const std::vector<std::shared_ptr<Table>>& tables,
                      std::span<const std::uint64_t> ids, std::size_t examples) {
  Descriptor client(here), serving(there);
  if (tables.empty() || examples == 0 || ids.empty() ||
      ids.size() % (tables.size() * examples) != 0) {
    throw Error("ids must be some batches, of each table as many as a batch has examples");
  }
  std::vector<std::size_t> numbers(tables.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  std::vector<ServedTable> served;
  std::vector<RowPlacement::PlacedTable> placed;
  for (const std::shared_ptr<Table>& table : tables) {
    const Table::Settings& settings = table->settings();
    served.push_back({settings.name, table->dim(), table->grows() ? 0 : settings.rows});
    placed.push_back({table->grows(), 0});
  }
  const RowPlacement placement(placed, RowPlacement::evenly(1));
  RowServer server(tables, numbers, placement, 0, 1);
  RemoteRows store({served, numbers, placement, 1, 1, 1, 0, 1, kServerSilence, kServerSilence});
  // Both at once: each waits for the other to agree.
  auto adopted = std::async(std::launch::async, [&] {
    server.adopt(serving.get(), false, wish);
    serving.take();
  });
  if (!store.adopt(0, 0, client.get(), false, wish, 0)) throw Error("the server does not answer");
  client.take();
  adopted.get();

  const std::size_t batches = ids.size() / (tables.size() * examples);
  std::array<double, kRounds> served_seconds, asked_seconds;
  {
    Asker asker(store, tables.size(), ids, examples, 1 + kRounds);
    asker.round();  // until memory and caches are as they will be
    for (std::size_t i = 0; i < kRounds; ++i) {
      const double before = server.counters().seconds, begin = thread_seconds();
      asker.round();
      asked_seconds[i] = (thread_seconds() - begin) / static_cast<double>(batches);
      served_seconds[i] = (server.counters().seconds - before) / static_cast<double>(batches);
    }
  }
  const RemoteRows::Counters counters = store.counters();  // of batches that are all settled
  const auto each = [&](std::uint64_t counted) {
    return static_cast<double>(counted) / static_cast<double>(batches * (1 + kRounds));
  };
  return {each(counters.rows), median(served_seconds), median(asked_seconds),
          each(counters.traffic.out), each(counters.traffic.in)};
}

}  // namespace leashed
