// Where the time of one gradient of the MLP goes, by one thread: each stage with its FLOPs and the
// bytes it must read and write at least, its time in the order and with the buffers, strides and
// fused epilogues of the network (network/network.cc, model/dense_pass.cc), beside the whole
// gradient as the network itself computes it and the multiply-add rate, in turns. The bytes mostly
// come from the caches.
//
//   bench_profile <seconds per batch size>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ceiling.h"
#include "json_line.h"
#include "leashed/kernels/dense.h"
#include "leashed/model/loss.h"
#include "leashed/update/passes.h"
#include "leashed/update/rules.h"
#include "networks.h"

using namespace leashed;

namespace {

constexpr std::size_t kMicroBatch = 64;  // as network/network.cc
constexpr std::size_t kWidths[] = {784, 128, 128, 128, 10};
constexpr std::size_t kLayers = 4;

std::size_t stride(std::size_t n) { return ((n + 15) / 16 | 1) * 16; }  // as model/dense_pass.h

struct Stage {
  std::string name;
  double flops, bytes;
  bench::Work work;
  double seconds = 0;         // in the turn under way
  std::vector<double> turns;  // seconds a gradient
};

class Mlp {
 public:
  explicit Mlp(std::size_t batch_size)
      : batch_size_(batch_size), rows_(std::min(batch_size, kMicroBatch)), batches_(batch_size) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i <= kLayers; ++i) {
      outputs_.push_back(bench::random_values(kMicroBatch * stride(kWidths[i]), 1));
      if (i == kLayers) break;
      weight_.push_back(offset);
      bias_.push_back(offset + kWidths[i] * kWidths[i + 1]);
      offset = bias_.back() + kWidths[i + 1];
      transposed_.push_back(bench::random_values(kWidths[i + 1] * stride(kWidths[i]), 0.05f));
    }
    theta_ = bench::random_values(offset, 0.05f);
    gradient_ = bench::random_values(offset, 0);
    next_ = bench::random_values(offset, 0);
    residuals_ = bench::random_values(kMicroBatch * stride(kWidths[kLayers]), 1);
    scratch_ = AlignedArray<float>(dense_.gemm_scratch(kWidths[0]));
    make_stages();
  }

  // One gradient and one update, every stage timed.
  void step() {
    for (Stage& stage : stages_) stage.seconds = 0;
    view_ = batches_.next();
    for (first_ = 0; first_ < batch_size_; first_ += rows_) {
      const float* const* next =
          first_ + rows_ < batch_size_ ? view_.rows + first_ + rows_ : view_.next_rows;
      ahead_ = {next, next + rows_, kWidths[0]};
      for (Stage& stage : stages_) {
        const bool once = stage.name.starts_with("transpose") || stage.name == "update";
        if (once && (stage.name == "update" ? first_ + rows_ < batch_size_ : first_ > 0)) continue;
        const double start = now();
        stage.work();
        stage.seconds += now() - start;
      }
    }
    for (Stage& stage : stages_) stage.turns.push_back(stage.seconds);
  }

  const std::vector<Stage>& stages() const { return stages_; }
  double flops() const {
    double sum = 0;
    for (const Stage& stage : stages_) sum += stage.flops;
    return sum;
  }

 private:
  // FLOPs and bytes are told for one micro-batch or, where the stage runs but once, one gradient.
  void add(std::string name, bool once, double flops, double floats, bench::Work work) {
    const double times = once ? 1 : static_cast<double>(batch_size_ / rows_);
    stages_.push_back({std::move(name), times * flops, times * 4 * floats, std::move(work), 0, {}});
  }

  void make_stages() {
    const auto real = [](std::size_t n) { return static_cast<double>(n); };
    for (std::size_t i = 1; i < kLayers; ++i) {
      const std::size_t in = kWidths[i], out = kWidths[i + 1];
      add("transpose W" + std::to_string(i + 1), true, 0, 2 * real(in * out), [=, this] {
        dense_.transpose(theta_.data() + weight_[i], in, out, out, transposed_[i].data(),
                         stride(in));
      });
    }
    add("gather", false, 0, 2 * real(rows_ * kWidths[0]), [this] {
      for (std::size_t i = 0; i < rows_; ++i) {
        if (i + 2 < rows_) {
          const float* next = view_.rows[first_ + i + 2];
          for (std::size_t j = 0; j < kWidths[0]; j += 16) __builtin_prefetch(next + j, 0, 2);
        }
        std::memcpy(outputs_[0].data() + i * stride(kWidths[0]), view_.rows[first_ + i],
                    kWidths[0] * sizeof(float));
      }
    });
    for (std::size_t i = 0; i < kLayers; ++i) add_forward(i);
    const std::size_t classes = kWidths[kLayers];
    add("softmax", false, 0, 3 * real(rows_ * classes), [=, this] {
      softmax_.residuals(outputs_[kLayers].data(), residuals_.data(), rows_, classes,
                         stride(classes), view_.targets.from(first_), 1e-3f);
    });
    for (std::size_t i = kLayers; i-- > 0;) add_backward(i);
    const std::size_t d = theta_.size();
    add("update", true, 2 * real(d), 3 * real(d), [=, this] {
      Coefficients numbers;
      numbers.lr = 1e-6f;
      const Pass pass = pass_table()[kArithmetic<Sgd>](Mode::cached, false, numbers);
      pass(next_.data(), theta_.data(), d, gradient_.data(), 0, d, numbers);
    });
  }

  void add_forward(std::size_t i) {
    const std::size_t in = kWidths[i], out = kWidths[i + 1];
    const auto m = static_cast<double>(rows_), n = static_cast<double>(out),
               k = static_cast<double>(in);
    add("forward " + std::to_string(i + 1), false, 2 * m * n * k, m * k + k * n + n + m * n,
        [=, this] {
          dense_.gemm({.m = rows_,
                       .n = out,
                       .k = in,
                       .a = outputs_[i].data(),
                       .a_row = stride(in),
                       .a_col = 1,
                       .b = theta_.data() + weight_[i],
                       .ldb = out,
                       .c = outputs_[i + 1].data(),
                       .ldc = stride(out),
                       .bias = theta_.data() + bias_[i],
                       .relu = i + 1 < kLayers,
                       .ahead = &ahead_},
                      scratch_.data());
        });
  }

  void add_backward(std::size_t i) {
    const std::size_t in = kWidths[i], out = kWidths[i + 1];
    const auto m = static_cast<double>(rows_), n = static_cast<double>(out),
               k = static_cast<double>(in);
    const float* d_out = i + 1 == kLayers ? residuals_.data() : outputs_[i + 1].data();
    const std::string number = std::to_string(i + 1);
    add("dW" + number, false, 2 * m * n * k, m * k + m * n + k * n, [=, this] {
      dense_.gemm({.m = in,
                   .n = out,
                   .k = rows_,
                   .a = outputs_[i].data(),
                   .a_row = 1,
                   .a_col = stride(in),
                   .b = d_out,
                   .ldb = stride(out),
                   .c = gradient_.data() + weight_[i],
                   .ldc = out,
                   .accumulate = first_ > 0,
                   .ahead = &ahead_},
                  scratch_.data());
    });
    add("db" + number, false, m * n, m * n + n, [=, this] {
      dense_.column_sums(d_out, rows_, out, stride(out), gradient_.data() + bias_[i], first_ > 0);
    });
    if (i == 0) return;
    add("dX" + number, false, 2 * m * n * k, m * n + k * n + 2 * m * k, [=, this] {
      dense_.gemm({.m = rows_,
                   .n = in,
                   .k = out,
                   .a = d_out,
                   .a_row = stride(out),
                   .a_col = 1,
                   .b = transposed_[i].data(),
                   .ldb = stride(in),
                   .c = outputs_[i].data(),
                   .ldc = stride(in),
                   .gate = outputs_[i].data(),
                   .ahead = &ahead_},
                  scratch_.data());
    });
  }

  const std::size_t batch_size_, rows_;
  const DenseKernels& dense_ = dense_kernels(default_isa());
  const Loss& softmax_ = find_loss("softmax", kWidths[kLayers], default_isa());
  bench::RandomBatches batches_;
  BatchView view_{};
  RowsAhead ahead_;
  std::size_t first_ = 0;
  std::vector<std::size_t> weight_, bias_;
  std::vector<AlignedArray<float>> outputs_, transposed_;
  AlignedArray<float> theta_, gradient_, next_, residuals_, scratch_;
  std::vector<Stage> stages_;
};

void profile(std::size_t batch_size, double seconds) {
  const Network network = bench::make_network("MLP");
  const auto theta = bench::random_values(network.dimension(), 0.05f);
  AlignedArray<float> gradient(network.dimension());
  const auto workspace = network.make_workspace();
  const std::atomic<bool> cancel{false};
  bench::RandomBatches batches(batch_size);
  Mlp mlp(batch_size);
  constexpr std::size_t kRounds = 20000;
  const double ceiling_flops = bench::multiply_adds(default_isa(), 1) * kRounds;
  std::vector<double> whole, ceilings;
  // The monotonic clock, which is read in a few nanoseconds: a stage is too short for the thread's.
  // The median leaves out the turns that something interrupted.
  const double used = thread_seconds(), start = now();
  while (now() - start < seconds) {
    double begin = now();
    bench::multiply_adds(default_isa(), kRounds);
    ceilings.push_back(ceiling_flops / (now() - begin) * 1e-9);
    const BatchView view = batches.next();
    begin = now();
    network.gradient(theta.data(), view, gradient.data(), *workspace, cancel);
    whole.push_back(now() - begin);
    mlp.step();
  }
  const double share = (thread_seconds() - used) / (now() - start);
  for (const Stage& stage : mlp.stages()) {
    const double time = bench::median(stage.turns);
    bench::JsonLine("stage")
        .add("network", "MLP")
        .add("batch_size", batch_size)
        .add("stage", stage.name)
        .add("seconds", time)
        .add("flops", stage.flops)
        .add("bytes", stage.bytes)
        .add("ceiling", bench::median(ceilings))
        .add("cpu_share", share);
  }
  const double flops = network.flops_per_example() * static_cast<double>(batch_size);
  bench::JsonLine("whole gradient")
      .add("network", "MLP")
      .add("batch_size", batch_size)
      .add("seconds", bench::median(whole))
      .add("flops", flops)
      .add("ceiling", bench::median(ceilings))
      .add("cpu_share", share);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fputs("usage: bench_profile <seconds>\n", stderr), 2;
  for (std::size_t batch : {16, 64, 512}) profile(batch, std::atof(argv[1]));
}
