// What finding and updating rows of growing tables costs beside fixed ones: batches of 256
// examples, one id of each table, all of them known; between a batch's lookup and its update other
// memory is written, as a gradient's work does. All threads at one kind of table, in turns, each on
// its own clock: the time it waited for a CPU says nothing about tables.
//
//   bench_tables <seconds> <threads> <tables> <rows> <dim> <exponent of Zipf's law>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <thread>

#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/row_store/local_rows.h"
#include "turns.h"
#include "zipf.h"

using namespace leashed;

namespace {

constexpr std::size_t kBatch = 256, kBatches = 64;
constexpr std::size_t kWork = std::size_t{1} << 18;  // floats that are written between

struct Clicks {
  std::vector<std::vector<std::uint64_t>> ids;  // of each table
  std::vector<IdColumn> columns;
  BatchView view{nullptr, Targets(), kBatch};
};

class Side {
 public:
  Side(const std::string& name, std::size_t threads, std::size_t tables, std::size_t rows,
       std::size_t dim, bool grows, const std::vector<Clicks>& batches)
      : batches_(batches), members_(threads) {
    const Choice rule{"adagrad", {{"lr", 1e-4}, {"eps", 1e-10}, {"initial_accumulator", 0.0}}};
    for (std::uint32_t t = 0; t < tables; ++t) {
      Table::Settings settings;
      settings.name = name;
      settings.dim = dim;
      settings.rows = grows ? 0 : rows;
      settings.max_bytes = grows ? std::size_t{64} << 20 : 0;
      settings.initial = {"zeros", {}};
      settings.rule = rule;
      settings.staleness = {"none", {}};
      settings.number = t;
      tables_.push_back(std::make_shared<Table>(settings));
    }
    std::vector<std::size_t> features(tables);
    std::iota(features.begin(), features.end(), std::size_t{0});
    store_ = std::make_unique<LocalRows>(tables_, features, threads, 1, false);
    std::vector<std::uint64_t> all(rows);
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    const std::vector<float> gradients(rows * dim);
    for (const auto& table : tables_) {
      for (int again = 0; again < 2; ++again) {
        table->update(all.data(), rows, gradients.data(), nullptr);
      }
    }
    for (std::size_t w = 0; w < threads; ++w) {
      Member& member = members_[w];
      member.k = w * kBatches / threads;
      for (auto& rows_of_batch : member.rows) rows_of_batch = store_->make_batch();
      member.views[member.k % 2] = batch(member.k);
      store_->prefetch(w, member.views[member.k % 2], *member.rows[member.k % 2]);
    }
  }

  // One batch of a thread: its rows, and the seconds of them alone.
  struct Step {
    std::uint64_t rows;
    double seconds;
  };
  Step step(std::size_t w, float* work) {
    Member& member = members_[w];
    const std::size_t here = member.k % 2, next = 1 - here;
    ++member.k;
    BatchView& current = member.views[here];
    member.views[next] = batch(member.k);
    double begin = leashed::thread_seconds();
    store_->prefetch(w, member.views[next], *member.rows[next]);
    store_->pull(w, current, *member.rows[here]);
    const double seconds = leashed::thread_seconds() - begin;
    for (const TableRows& rows : current.tables) {
      for (std::size_t i = 0; i < rows.count * rows.stride; ++i) rows.gradient[i] = 1e-3f;
    }
    for (std::size_t i = 0; i < kWork; ++i) work[i] += 1.0f;
    begin = leashed::thread_seconds();
    const std::uint64_t applied = store_->push(w, *member.rows[here], {member.k}).applied;
    return {applied, seconds + (leashed::thread_seconds() - begin)};
  }

 private:
  struct alignas(kCacheLine) Member {
    std::unique_ptr<BatchRows> rows[2];
    BatchView views[2]{{nullptr, Targets(), 0}, {nullptr, Targets(), 0}};
    std::size_t k = 0;
  };

  const BatchView& batch(std::size_t k) const { return batches_[k % kBatches].view; }

  const std::vector<Clicks>& batches_;
  std::vector<std::shared_ptr<Table>> tables_;
  std::unique_ptr<LocalRows> store_;
  std::vector<Member> members_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    return std::fputs("usage: bench_tables <seconds> <threads> <tables> <rows> <dim> <exponent>\n",
                      stderr),
           2;
  }
  const auto number = [argv](int i) { return static_cast<std::size_t>(std::atol(argv[i])); };
  const double seconds = std::atof(argv[1]);
  const std::size_t threads = number(2), tables = number(3), rows = number(4), dim = number(5);
  const bench::Zipf zipf(rows, std::atof(argv[6]));
  std::mt19937_64 random(1);
  std::vector<Clicks> batches(kBatches);
  for (Clicks& batch : batches) {
    for (std::size_t t = 0; t < tables; ++t) {
      std::vector<std::uint64_t>& ids = batch.ids.emplace_back(kBatch);
      for (std::uint64_t& id : ids) id = zipf(random);
    }
    for (const auto& ids : batch.ids) batch.columns.push_back({.ids = ids.data()});
    batch.view.columns = batch.columns;
  }
  Side fixed("fixed", threads, tables, rows, dim, false, batches);
  Side growing("growing", threads, tables, rows, dim, true, batches);
  std::vector<std::vector<double>> rates[2];  // by turn and thread
  std::barrier together(static_cast<std::ptrdiff_t>(threads));
  std::atomic<bool> over{false};
  const double end = leashed::now() + seconds;
  constexpr int kSteps = 64;
  const auto turns = [&](std::size_t w) {
    AlignedArray<float> work(kWork);
    do {
      int which = 0;
      for (Side* side : {&fixed, &growing}) {
        if (w == 0) rates[which].emplace_back(threads);
        together.arrive_and_wait();
        Side::Step sum{0, 0};
        for (int i = 0; i < kSteps; ++i) {
          const Side::Step step = side->step(w, work.data());
          sum = {sum.rows + step.rows, sum.seconds + step.seconds};
        }
        rates[which++].back()[w] = static_cast<double>(sum.rows) / sum.seconds;
        // Relaxed: the barrier orders it.
        if (w == 0) over.store(leashed::now() >= end, std::memory_order_relaxed);
        together.arrive_and_wait();
      }
    } while (!over.load(std::memory_order_relaxed));
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t w = 1; w < threads; ++w) others.emplace_back(turns, w);
    turns(0);
  }
  const auto sums = [](const std::vector<std::vector<double>>& by_turn) {
    std::vector<double> sums;
    for (const auto& of : by_turn) sums.push_back(std::accumulate(of.begin(), of.end(), 0.0));
    return sums;
  };
  bench::JsonLine("growing")
      .add("batch", kBatch)
      .add("threads", threads)
      .add("fixed", sums(rates[0]))
      .add("growing", sums(rates[1]));
}
