// What finding and updating rows of growing tables costs beside fixed ones: batches of 256
// examples, one id of each table, all of them known; between a batch's lookup and its update other
// memory is written, as a gradient's work does. One thread, in turns.
//
//   bench_tables <seconds> <tables> <rows> <dim> <exponent of Zipf's law>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/table/local_rows.h"
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
  Side(const std::string& name, std::size_t tables, std::size_t rows, std::size_t dim, bool grows,
       std::vector<Clicks>& batches)
      : batches_(batches) {
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
    store_ = std::make_unique<LocalRows>(tables_, features, 1, 1, false);
    for (auto& rows_of_batch : rows_) rows_of_batch = store_->make_batch();
    std::vector<std::uint64_t> all(rows);
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    const std::vector<float> gradients(rows * dim);
    for (const auto& table : tables_) {
      for (int again = 0; again < 2; ++again) {
        table->update(all.data(), rows, gradients.data(), nullptr);
      }
    }
    store_->prefetch(0, batch(0).view, *rows_[0]);
  }

  // One batch: the seconds of its rows alone.
  double step(float* work) {
    Clicks& current = batch(k_);
    const std::size_t here = k_ % 2;
    ++k_;
    double begin = leashed::now();
    store_->prefetch(0, batch(k_).view, *rows_[1 - here]);
    store_->pull(0, current.view, *rows_[here]);
    double seconds = leashed::now() - begin;
    for (const TableRows& rows : current.view.tables) {
      for (std::size_t i = 0; i < rows.count * rows.stride; ++i) rows.gradient[i] = 1e-3f;
    }
    for (std::size_t i = 0; i < kWork; ++i) work[i] += 1.0f;
    begin = leashed::now();
    updated_ += store_->push(0, *rows_[here], {k_}).applied;
    return seconds + (leashed::now() - begin);
  }
  std::uint64_t updated() const { return updated_; }

 private:
  Clicks& batch(std::size_t k) { return batches_[k % kBatches]; }

  std::vector<Clicks>& batches_;
  std::vector<std::shared_ptr<Table>> tables_;
  std::unique_ptr<LocalRows> store_;
  std::unique_ptr<BatchRows> rows_[2];
  std::size_t k_ = 0;
  std::uint64_t updated_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    return std::fputs("usage: bench_tables <seconds> <tables> <rows> <dim> <exponent>\n", stderr),
           2;
  }
  const auto number = [argv](int i) { return static_cast<std::size_t>(std::atol(argv[i])); };
  const double seconds = std::atof(argv[1]);
  const std::size_t tables = number(2), rows = number(3), dim = number(4);
  const bench::Zipf zipf(rows, std::atof(argv[5]));
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
  Side fixed("fixed", tables, rows, dim, false, batches);
  Side growing("growing", tables, rows, dim, true, batches);
  AlignedArray<float> work(kWork);
  std::vector<double> rates[2];
  const double end = leashed::now() + seconds;
  constexpr int kSteps = 64;
  do {
    int which = 0;
    for (Side* side : {&fixed, &growing}) {
      const std::uint64_t before = side->updated();
      double spent = 0;
      for (int i = 0; i < kSteps; ++i) spent += side->step(work.data());
      rates[which++].push_back(static_cast<double>(side->updated() - before) / spent);
    }
  } while (leashed::now() < end);
  bench::JsonLine("growing").add("batch", kBatch).add("fixed", rates[0]).add("growing", rates[1]);
}
