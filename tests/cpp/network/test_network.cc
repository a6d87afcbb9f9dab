// Networks of every instruction-set level against reference/network.h: losses, probabilities, and
// gradients against its central differences.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/network/network.h"
#include "reference/network.h"

namespace {

using leashed::Isa;
using leashed::Network;
using leashed::Shape;
using reference::Conv2d;
using reference::Dense;
using reference::Layer;
using reference::MaxPool;
using reference::Relu;
using reference::Sigmoid;
using reference::Tanh;

const std::atomic<bool> kGoOn{false};

// A network with random parameters and a random batch.
struct Problem {
  Problem(Shape shape, std::vector<Layer> list, std::size_t batch, Isa isa, unsigned seed = 1)
      : input(shape), layers(std::move(list)), network(input, reference::chosen(layers), isa) {
    std::mt19937 random(seed);
    std::normal_distribution<float> draw;
    theta.resize(network.dimension());
    for (const auto& block : network.parameters()) {
      std::size_t size = 1;
      for (std::size_t n : block.shape) size *= n;
      const float scale = std::sqrt(2.0f / static_cast<float>(block.fan_in));
      for (std::size_t i = 0; i < size; ++i) theta[block.offset + i] = draw(random) * scale;
    }
    data.resize(batch * network.features());
    for (float& v : data) v = draw(random);
    for (std::size_t i = 0; i < batch; ++i) {
      rows.push_back(data.data() + i * network.features());
      labels.push_back(static_cast<std::int32_t>(random() % network.classes()));
    }
    workspace = network.make_workspace();
  }

  leashed::BatchView batch() const { return {rows.data(), labels.data(), rows.size()}; }

  std::vector<float> gradient(float* loss = nullptr) {
    std::vector<float> g(theta.size(), std::numeric_limits<float>::quiet_NaN());
    const float l = network.gradient(theta.data(), batch(), g.data(), *workspace, kGoOn);
    if (loss) *loss = l;
    return g;
  }

  double reference_loss(const reference::Values& at) const {
    return reference::loss(input, layers, at, rows, labels);
  }
  reference::Values theta_in_double() const { return {theta.begin(), theta.end()}; }

  Shape input;
  std::vector<Layer> layers;
  Network network;
  std::vector<float> theta, data;
  std::vector<const float*> rows;
  std::vector<std::int32_t> labels;
  std::unique_ptr<leashed::Workspace> workspace;
};

// Every partial derivative, or `directions` random directional ones if that is not 0.
void check_gradient(Problem& problem, int directions = 0) {
  float loss = 0;
  const std::vector<float> g = problem.gradient(&loss);
  const reference::Values theta = problem.theta_in_double();
  CHECK(loss == doctest::Approx(problem.reference_loss(theta)).epsilon(1e-5));

  constexpr double kStep = 1e-8;  // small: a ReLU or a maximum must not change sides within it
  double norm = 0;
  for (float v : g) norm += double{v} * v;
  norm = std::sqrt(norm);
  if (directions == 0) {
    double worst = 0;
    for (std::size_t i = 0; i < theta.size(); ++i) {
      reference::Values up = theta, down = theta;
      up[i] += kStep, down[i] -= kStep;
      const double expected =
          (problem.reference_loss(up) - problem.reference_loss(down)) / (2 * kStep);
      worst = std::max(worst, std::abs(g[i] - expected));
    }
    CHECK(worst < 2e-6 + 1e-5 * norm);
  }
  std::mt19937 random(7);
  std::normal_distribution<double> draw;
  for (int d = 0; d < directions; ++d) {
    reference::Values up = theta, down = theta;
    double dot = 0;
    for (std::size_t i = 0; i < theta.size(); ++i) {
      const double v = draw(random);
      up[i] += kStep * v, down[i] -= kStep * v;
      dot += v * g[i];
    }
    const double expected =
        (problem.reference_loss(up) - problem.reference_loss(down)) / (2 * kStep);
    CHECK(std::abs(dot - expected) < 2e-5 + 3e-5 * norm);
  }
}

void check_everywhere(Shape input, const std::vector<Layer>& layers,
                      const std::vector<std::size_t>& batches, int directions = 0) {
  for (Isa isa : leashed::available_isas()) {
    for (std::size_t batch : batches) {
      INFO(isa_name(isa), " batch=", batch);
      Problem problem(input, layers, batch, isa);
      check_gradient(problem, directions);
    }
  }
}

const std::vector<std::size_t> kBatches = {1, 3, 17, 64, 65, 130};

TEST_CASE("gradient of a dense layer") { check_everywhere({5, 1, 1}, {Dense{3}}, kBatches); }

TEST_CASE("gradient of dense layers with ReLU between") {
  check_everywhere({6, 1, 1}, {Dense{9}, Relu{}, Dense{20}, Dense{4}}, kBatches);
}

TEST_CASE("gradient with ReLU first, last and twice") {
  check_everywhere({7, 1, 1}, {Relu{}, Dense{8}, Relu{}, Relu{}, Dense{4}, Relu{}}, {1, 5, 65});
}

TEST_CASE("gradient with tanh and sigmoid before, between and behind dense layers") {
  check_everywhere({6, 1, 1}, {Dense{9}, Tanh{}, Dense{20}, Sigmoid{}, Dense{17}, Tanh{}, Dense{4}},
                   kBatches);
  check_everywhere({7, 1, 1}, {Tanh{}, Dense{8}, Relu{}, Dense{5}, Sigmoid{}}, {1, 5, 65});
  check_everywhere({7, 1, 1}, {Dense{8}, Dense{5}, Tanh{}}, {1, 5, 65});
}

TEST_CASE("gradient with tanh and sigmoid among convolutions, beside layers that work in place") {
  check_everywhere({1, 6, 6},
                   {Sigmoid{}, Conv2d{2, 3, 3}, Tanh{}, MaxPool{2, 1}, Sigmoid{}, Dense{3}},
                   {1, 17, 65});
  check_everywhere({1, 6, 6},
                   {Conv2d{2, 3, 3}, Tanh{}, Relu{}, Conv2d{3, 2, 2}, Relu{}, Sigmoid{}, Tanh{},
                    Relu{}, Dense{3}},
                   {1, 17});
}

TEST_CASE("gradient of random dense networks") {
  std::mt19937 random(3);
  for (int i = 0; i < 6; ++i) {
    std::vector<Layer> layers;
    for (unsigned n = random() % 3; n > 0; --n) {
      layers.push_back(Dense{1 + random() % 40});
      const std::vector<Layer> behind = {Relu{}, Tanh{}, Sigmoid{}};
      if (const unsigned which = random() % 4) layers.push_back(behind[which - 1]);
    }
    layers.push_back(Dense{1 + random() % 18});
    check_everywhere({1 + random() % 60, 1, 1}, layers, {1 + random() % 100}, 8);
  }
}

TEST_CASE("gradient of the MLP of Table II") {
  check_everywhere({1, 28, 28},
                   {Dense{128}, Relu{}, Dense{128}, Relu{}, Dense{128}, Relu{}, Dense{10}}, {17},
                   2);
}

TEST_CASE("gradient of a convolution alone") {
  check_everywhere({2, 5, 4}, {Conv2d{3, 3, 2}}, {1, 17, 65});
}

TEST_CASE("gradient of a padded, strided convolution without and with ReLU") {
  check_everywhere({2, 6, 5}, {Conv2d{2, 3, 3, 2, 1}, Dense{3}}, {1, 17});
  check_everywhere({2, 6, 5}, {Conv2d{2, 3, 3, 2, 1}, Relu{}, Relu{}, Dense{3}}, {1, 17});
}

TEST_CASE("gradient of a convolution with ReLU and pooling, fused and overlapping") {
  check_everywhere({1, 8, 9}, {Conv2d{2, 3, 3}, Relu{}, MaxPool{2, 2}, Dense{4}}, {1, 17, 65});
  check_everywhere({1, 8, 9}, {Conv2d{2, 3, 3}, Relu{}, MaxPool{2, 3}, Dense{4}}, {17});
  check_everywhere({1, 8, 9}, {Conv2d{2, 3, 3}, Relu{}, MaxPool{3, 2}, Dense{4}}, {17});
}

TEST_CASE("gradient of pooling before, and ReLU after") {
  check_everywhere({2, 9, 9},
                   {MaxPool{2, 1}, Conv2d{2, 3, 3}, MaxPool{2, 2}, Relu{}, Conv2d{3, 2, 2, 1, 1},
                    Relu{}, Dense{5}, Relu{}, Dense{3}},
                   {1, 16, 37});
}

TEST_CASE("gradient with pooling but no parameters before the dense layers") {
  check_everywhere({2, 5, 5}, {MaxPool{2, 2}, Relu{}, Dense{6}, Relu{}, Dense{3}}, {1, 19});
}

TEST_CASE("gradient of the CNN of Table III") {
  check_everywhere({1, 28, 28},
                   {Conv2d{4, 3, 3}, Relu{}, MaxPool{2, 2}, Conv2d{8, 3, 3}, Relu{}, MaxPool{2, 2},
                    Dense{128}, Relu{}, Dense{10}},
                   {33}, 1);
}

TEST_CASE("dimension, blocks and operations of the networks of Tables II and III") {
  const Network mlp({1, 28, 28}, reference::chosen({Dense{128}, Relu{}, Dense{128}, Relu{},
                                                    Dense{128}, Relu{}, Dense{10}}));
  CHECK(mlp.dimension() == 134794);
  CHECK(mlp.features() == 784);
  CHECK(mlp.classes() == 10);
  CHECK(mlp.flops_per_example() == 605696);
  const Network cnn({1, 28, 28},
                    reference::chosen({Conv2d{4, 3, 3}, Relu{}, MaxPool{2, 2}, Conv2d{8, 3, 3},
                                       Relu{}, MaxPool{2, 2}, Dense{128}, Relu{}, Dense{10}}));
  CHECK(cnn.dimension() == 27354);
  const auto& blocks = cnn.parameters();
  REQUIRE(blocks.size() == 8);
  CHECK(blocks[2].name == "3.weight");
  CHECK(blocks[2].shape == std::vector<std::size_t>{8, 4, 3, 3});
  CHECK(blocks[2].offset == 40);
  CHECK(blocks[2].fan_in == 36);
  CHECK(blocks[2].fan_out == 72);
  CHECK(blocks[7].name == "8.bias");
  CHECK(blocks[7].offset == 27344);
}

TEST_CASE("predict gives the reference's probabilities and evaluate its loss and classes") {
  for (Isa isa : leashed::available_isas()) {
    Problem p({1, 9, 8}, {Conv2d{3, 3, 3}, Relu{}, MaxPool{2, 2}, Dense{7}, Relu{}, Dense{5}}, 130,
              isa);
    std::vector<float> probabilities(130 * 5);
    p.network.predict(p.theta.data(), p.rows.data(), 130, probabilities.data(), *p.workspace);
    const reference::Values theta = p.theta_in_double();
    std::uint64_t correct = 0;
    for (std::size_t i = 0; i < 130; ++i) {
      const auto expected = reference::probabilities(p.input, p.layers, theta.data(), p.rows[i]);
      for (std::size_t j = 0; j < 5; ++j) {
        CHECK(probabilities[i * 5 + j] == doctest::Approx(expected[j]).epsilon(1e-4));
      }
      correct +=
          std::max_element(expected.begin(), expected.end()) - expected.begin() == p.labels[i];
    }
    const leashed::Evaluation e = p.network.evaluate(p.theta.data(), p.batch(), *p.workspace);
    CHECK(e.rows == 130);
    CHECK(e.correct == correct);
    CHECK(e.loss_sum == doctest::Approx(130 * p.reference_loss(theta)).epsilon(1e-5));
  }
}

TEST_CASE("gradient is the same, bit for bit, whatever was computed before") {
  for (Isa isa : leashed::available_isas()) {
    const std::vector<Layer> layers = {Conv2d{2, 3, 3}, Relu{}, MaxPool{2, 2}, Dense{10}};
    Problem p({1, 8, 8}, layers, 100, isa), other({1, 8, 8}, layers, 64, isa, 2);
    const std::vector<float> first = p.gradient();
    CHECK(p.gradient() == first);
    std::swap(p.workspace, other.workspace);
    other.gradient();
    std::swap(p.workspace, other.workspace);
    CHECK(p.gradient() == first);
    p.workspace = p.network.make_workspace();
    CHECK(p.gradient() == first);
  }
}

TEST_CASE("NaN or infinite parameters give a loss that is not finite") {
  const std::vector<std::vector<Layer>> networks = {
      {Dense{6}, Relu{}, Dense{3}},
      {Dense{6}, Tanh{}, Dense{7}, Sigmoid{}, Dense{3}},
      {Conv2d{2, 3, 3}, Relu{}, MaxPool{2, 2}, Dense{3}},
      {Conv2d{2, 3, 3}, Relu{}, MaxPool{2, 1}, Dense{3}},
      {Conv2d{2, 3, 3}, Relu{}, Dense{3}},
  };
  for (Isa isa : leashed::available_isas()) {
    for (std::size_t n = 0; n < networks.size(); ++n) {
      Problem p({1, 6, 6}, networks[n], 20, isa);
      for (const auto& block : p.network.parameters()) {
        INFO(isa_name(isa), " network ", n, " ", block.name);
        const float old = p.theta[block.offset];
        p.theta[block.offset] = std::numeric_limits<float>::quiet_NaN();
        float loss = 0;
        p.gradient(&loss);
        CHECK(std::isnan(loss));
        CHECK(std::isnan(p.network.evaluate(p.theta.data(), p.batch(), *p.workspace).loss_sum));
        p.theta[block.offset] = old;
      }
    }
  }
}

TEST_CASE("a cancelled gradient returns at once") {
  Problem p({4, 1, 1}, {Dense{3}}, 20, leashed::default_isa());
  const std::atomic<bool> cancel{true};
  std::vector<float> g(p.theta.size(), 7);
  p.network.gradient(p.theta.data(), p.batch(), g.data(), *p.workspace, cancel);
  CHECK(g.back() == 7);
}

void check_error(Shape input, const std::vector<leashed::Layer>& layers,
                 const std::string& message) {
  try {
    Network(input, layers);
    FAIL("accepted, but expected: " << message);
  } catch (const leashed::Error& e) {
    CHECK_MESSAGE(std::string(e.what()).find(message) != std::string::npos, e.what());
  }
}

void check_error(Shape input, const std::vector<Layer>& layers, const std::string& message) {
  check_error(input, reference::chosen(layers), message);
}

TEST_CASE("layers that do not fit are named by their index") {
  check_error({1, 28, 28}, std::vector<Layer>{}, "at least one layer");
  check_error({1, 0, 28}, {Dense{3}}, "input shape");
  check_error({1, 28, 28}, {Relu{}}, "layer with parameters");
  check_error({4, 1, 1}, {Dense{4}, Relu{}, Dense{0}}, "layer 2: Dense");
  check_error({4, 1, 1}, {Dense{4}, Conv2d{2, 1, 1}}, "layer 1: Conv2d cannot follow Dense");
  check_error({4, 1, 1}, {Dense{4}, MaxPool{1, 1}}, "layer 1: MaxPool cannot follow Dense");
  check_error({4, 1, 1}, {Dense{4}, Relu{}, Tanh{}}, "layer 2: Tanh cannot follow another");
  check_error({4, 1, 1}, {Dense{4}, Sigmoid{}, Relu{}}, "layer 2: ReLU cannot follow another");
  check_error({1, 5, 5}, {Relu{}, Conv2d{2, 6, 3}}, "layer 1: Conv2d's kernel of 6 x 3");
  check_error({1, 5, 5}, {Conv2d{0, 3, 3}}, "layer 0: Conv2d needs at least 1 filter");
  check_error({1, 5, 5}, {Conv2d{1, 0, 3}}, "layer 0: Conv2d needs a kernel");
  check_error({1, 5, 5}, {Conv2d{1, 3, 3, 0}}, "layer 0: Conv2d needs a stride");
  check_error({1, 5, 5}, {MaxPool{6, 6}}, "layer 0: MaxPool's window of 6 x 6");
  check_error({1, 5, 5}, {MaxPool{0, 2}}, "layer 0: MaxPool needs a size");
  check_error({1, 5, 5}, {MaxPool{2, 0}}, "layer 0: MaxPool needs a size");
}

TEST_CASE("sizes whose product wraps are refused") {
  constexpr std::size_t kHalf = std::size_t{1} << 31, kMost = kHalf - 1;
  const std::string too_large = "too large for any memory; make it smaller";
  // 2^64 + 1 values, 2^32 of them, and so on: products that come out small.
  check_error({kHalf, kHalf, 4}, {Dense{3}}, "the input shape is " + too_large);
  check_error({1, kHalf, 2}, {Dense{kMost}}, "layer 0: it is " + too_large);
  check_error({1, 1, 1}, {Dense{kMost}, Dense{kMost}}, "layer 1: it is " + too_large);
  check_error({kHalf, 1, 1}, {Conv2d{kMost, 1, 1}}, "layer 0: it is " + too_large);
  check_error({1, 1, 1}, {Conv2d{4, kMost, kMost, 1, kMost}}, "layer 0: it is " + too_large);
  check_error({1, 1, 1}, {Conv2d{2, 1, 1, 1, kMost}, Dense{1}}, "layer 0: it is " + too_large);
}

TEST_CASE("sizes that are no whole numbers are refused") {
  const std::string message = "dense's outputs must be a whole number from 0 to 2147483647";
  for (double wrong : {-1.0, 0.5, 1e10, double{NAN}, double{INFINITY}}) {
    check_error({4, 1, 1}, {leashed::Layer{"dense", {{"outputs", wrong}}}}, message);
  }
  check_error({4, 1, 1}, {leashed::Layer{"dense"}}, "dense needs a value for 'outputs'");
  check_error({4, 1, 1}, {leashed::Layer{"Dense"}}, "unknown layer 'Dense'");
}

}  // namespace
