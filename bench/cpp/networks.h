// The networks of leashed-sgd, Tables II and III, and random data for them: what they cost does not
// depend on the values.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/data/dataset_view.h"
#include "leashed/network/network.h"

namespace bench {

inline leashed::Network make_network(const std::string& name,
                                     leashed::Isa isa = leashed::default_isa()) {
  using namespace leashed;
  const auto dense = [](double outputs) { return Layer{"dense", {{"outputs", outputs}}}; };
  const auto conv = [](double filters) {
    return Layer{
        "conv2d",
        {{"filters", filters}, {"kernel_h", 3}, {"kernel_w", 3}, {"stride", 1}, {"padding", 0}}};
  };
  const Layer pool{"max_pool", {{"size", 2}, {"stride", 2}}}, relu{"relu"};
  const std::vector<Layer> mlp = {dense(128), relu, dense(128), relu, dense(128), relu, dense(10)};
  const std::vector<Layer> cnn = {conv(4), relu,       pool, conv(8),  relu,
                                  pool,    dense(128), relu, dense(10)};
  return {{1, 28, 28}, name == "MLP" ? mlp : cnn, isa};
}

inline leashed::AlignedArray<float> random_values(std::size_t n, float scale) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-scale, scale);
  leashed::AlignedArray<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = draw(random);
  return values;
}

// 10,000 images and their labels.
inline const leashed::DatasetView& images() {
  constexpr std::size_t kImages = 10000, kPixels = 784;
  static const auto pixels = random_values(kImages * kPixels, 1);
  static const auto labels = [] {
    std::vector<std::int32_t> drawn(kImages);
    std::mt19937 random(2);
    for (auto& label : drawn) label = static_cast<std::int32_t>(random() % 10);
    return drawn;
  }();
  static const leashed::DatasetView view = {pixels.data(), labels.data(), kImages, kPixels};
  return view;
}

// Batches of images drawn at random, each with the rows of the one after it, as training does it.
class RandomBatches {
 public:
  explicit RandomBatches(std::size_t size) : now_(size), next_(size) { draw(next_); }

  // Valid until the call after the next.
  leashed::BatchView next() {
    std::swap(now_, next_);
    draw(next_);
    return {now_.rows.data(), now_.labels.data(), now_.rows.size(), next_.rows.data()};
  }

 private:
  struct Batch {
    explicit Batch(std::size_t size) : rows(size), labels(size) {}
    std::vector<const float*> rows;
    std::vector<std::int32_t> labels;
  };

  void draw(Batch& batch) {
    const leashed::DatasetView& data = images();
    for (std::size_t i = 0; i < batch.rows.size(); ++i) {
      const std::size_t row = random_() % data.rows;
      batch.rows[i] = data.x + row * data.features;
      batch.labels[i] = data.targets.labels[row];
    }
  }

  std::mt19937 random_{3};
  Batch now_, next_;
};

}  // namespace bench
