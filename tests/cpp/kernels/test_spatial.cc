// Every spatial kernel at every instruction-set level of this machine against plain loops in double
// precision, over random shapes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/base/isa.h"
#include "leashed/kernels/spatial.h"

using namespace leashed;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Images as a caller knows them: one after the other, [image][channel][row][column].
using Images = std::vector<std::vector<double>>;

class Case {
 public:
  explicit Case(std::uint32_t seed) : random_(seed) {
    conv.channels = pick(1, 5);
    conv.filters = pick(1, 9);
    conv.kernel_h = pick(1, 5);
    conv.kernel_w = pick(0, 1) ? conv.kernel_h : pick(1, 5);
    conv.stride = pick(0, 1) ? 1 : pick(1, 3);
    conv.padding = pick(0, 2);
    conv.height = pick(conv.kernel_h, 13);
    conv.width = pick(conv.kernel_w, 13);
    conv.out_height = (conv.height + 2 * conv.padding - conv.kernel_h) / conv.stride + 1;
    conv.out_width = (conv.width + 2 * conv.padding - conv.kernel_w) / conv.stride + 1;
    pool = {conv.filters, conv.out_height, conv.out_width, 0, 0, 0, 0};
    do {
      pool.size = pick(1, 3);
    } while (pool.size > pool.height || pool.size > pool.width);
    pool.stride = pick(0, 1) ? pool.size : pick(1, 3);
    pool.out_height = (pool.height - pool.size) / pool.stride + 1;
    pool.out_width = (pool.width - pool.size) / pool.stride + 1;
    w = values(conv.filters * conv.channels * conv.kernel_h * conv.kernel_w);
    b = values(conv.filters);
  }

  std::size_t pick(std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random_);
  }
  std::vector<float> values(std::size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = std::normal_distribution<float>()(random_);
    return v;
  }
  // Values from {-1, 0, 1, 2}: many ties.
  std::vector<float> small_integers(std::size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = static_cast<float>(pick(0, 3)) - 1;
    return v;
  }
  Images images(std::size_t count, std::size_t features) {
    Images all;
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<float> v = values(features);
      all.emplace_back(v.begin(), v.end());
    }
    return all;
  }

  std::size_t in_size() const { return conv.channels * conv.height * conv.width; }
  std::size_t out_size() const { return conv.filters * conv.out_height * conv.out_width; }
  std::size_t pooled_size() const { return pool.channels * pool.out_height * pool.out_width; }

  std::string describe(Isa isa) const {
    std::string text(isa_name(isa));
    const auto add = [&](const char* name, std::size_t value) {
      text += std::string(", ") + name + ' ' + std::to_string(value);
    };
    add("channels", conv.channels), add("height", conv.height), add("width", conv.width);
    add("filters", conv.filters), add("kernel_h", conv.kernel_h), add("kernel_w", conv.kernel_w);
    add("stride", conv.stride), add("padding", conv.padding);
    add("pool", pool.size), add("pool stride", pool.stride);
    return text;
  }

  ConvShape conv;
  PoolShape pool;
  std::vector<float> w, b;

 private:
  std::mt19937 random_;
};

// A block with the images in its first lanes and zeros in the others. Nothing lies behind it that
// a kernel could touch unseen: the array ends where the block does.
AlignedArray<float> block(const Images& images, std::size_t features, std::size_t lanes) {
  AlignedArray<float> out(features * lanes);
  for (std::size_t f = 0; f < features; ++f)
    for (std::size_t i = 0; i < lanes; ++i)
      out[f * lanes + i] = i < images.size() ? static_cast<float>(images[i][f]) : 0.0f;
  return out;
}

AlignedArray<float> rubbish(std::size_t n) {
  AlignedArray<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = kNaN;
  return out;
}

double worst(const Images& expected, const AlignedArray<float>& got, std::size_t lanes) {
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t f = 0; f < expected[i].size(); ++f) {
      const double e = expected[i][f], g = got[f * lanes + i];
      const double difference = std::isnan(e) && std::isnan(g) ? 0 : std::abs(e - g);
      if (!(difference <= error)) error = difference;
      if (std::isnan(error)) return error;
    }
  }
  return error;
}

double worst(const std::vector<double>& expected, const std::vector<float>& got) {
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    error = std::max(error, std::abs(expected[i] - got[i]) / (1 + std::abs(expected[i])));
  return error;
}

// Calls f(filter, y, x, output index, channel, ky, kx, weight index, input index) for every
// multiply-add of the convolution.
template <class F>
void each_product(const ConvShape& s, F&& f) {
  for (std::size_t m = 0; m < s.filters; ++m)
    for (std::size_t y = 0; y < s.out_height; ++y)
      for (std::size_t x = 0; x < s.out_width; ++x)
        for (std::size_t c = 0; c < s.channels; ++c)
          for (std::size_t i = 0; i < s.kernel_h; ++i)
            for (std::size_t j = 0; j < s.kernel_w; ++j) {
              const std::size_t row = y * s.stride + i - s.padding;
              const std::size_t column = x * s.stride + j - s.padding;
              if (row >= s.height || column >= s.width) continue;  // also where it wraps below 0
              f((m * s.out_height + y) * s.out_width + x,
                ((m * s.channels + c) * s.kernel_h + i) * s.kernel_w + j,
                (c * s.height + row) * s.width + column);
            }
}

Images plain_conv(const Case& t, const Images& in, bool relu) {
  const std::size_t plane = t.conv.out_height * t.conv.out_width;
  Images out;
  for (const auto& image : in) {
    std::vector<double> o(t.out_size());
    for (std::size_t i = 0; i < o.size(); ++i) o[i] = t.b[i / plane];
    each_product(t.conv, [&](std::size_t to, std::size_t weight, std::size_t from) {
      o[to] += double{t.w[weight]} * image[from];
    });
    if (relu)
      for (double& x : o) x = x <= 0 ? 0 : x;
    out.push_back(std::move(o));
  }
  return out;
}

// The pooled values and, for each, the index of the input it came from.
struct Pooled {
  Images values;
  std::vector<std::vector<std::size_t>> from;
};

Pooled plain_pool(const PoolShape& s, const Images& in) {
  Pooled out;
  for (const auto& image : in) {
    std::vector<double> values;
    std::vector<std::size_t> from;
    for (std::size_t c = 0; c < s.channels; ++c)
      for (std::size_t y = 0; y < s.out_height; ++y)
        for (std::size_t x = 0; x < s.out_width; ++x) {
          const auto at = [&](std::size_t i, std::size_t j) {
            return (c * s.height + y * s.stride + i) * s.width + x * s.stride + j;
          };
          std::size_t best = at(0, 0);
          for (std::size_t i = 0; i < s.size; ++i)
            for (std::size_t j = 0; j < s.size; ++j)
              if (image[at(i, j)] > image[best] || std::isnan(image[at(i, j)])) best = at(i, j);
          values.push_back(image[best]);
          from.push_back(best);
        }
    out.values.push_back(std::move(values));
    out.from.push_back(std::move(from));
  }
  return out;
}

// d_in of the pool; gradients of maxima that are not above 0 are dropped if `relu`.
Images plain_pool_backward(const PoolShape& s, const Pooled& pooled, const Images& d_out,
                           bool relu) {
  Images d_in;
  for (std::size_t n = 0; n < d_out.size(); ++n) {
    std::vector<double> d(s.channels * s.height * s.width);
    for (std::size_t i = 0; i < d_out[n].size(); ++i)
      if (!relu || !(pooled.values[n][i] <= 0)) d[pooled.from[n][i]] += d_out[n][i];
    d_in.push_back(std::move(d));
  }
  return d_in;
}

struct Parameters {
  std::vector<double> dw, db;
};
Parameters plain_backward_parameters(const Case& t, const Images& in, const Images& d_out) {
  Parameters d{std::vector<double>(t.w.size()), std::vector<double>(t.b.size())};
  for (std::size_t n = 0; n < in.size(); ++n) {
    each_product(t.conv, [&](std::size_t to, std::size_t weight, std::size_t from) {
      d.dw[weight] += d_out[n][to] * in[n][from];
    });
    for (std::size_t i = 0; i < d_out[n].size(); ++i)
      d.db[i / (t.conv.out_height * t.conv.out_width)] += d_out[n][i];
  }
  return d;
}
Images plain_backward_input(const Case& t, const Images& d_out) {
  Images d_in;
  for (const auto& d : d_out) {
    std::vector<double> o(t.in_size());
    each_product(t.conv, [&](std::size_t to, std::size_t weight, std::size_t from) {
      o[from] += double{t.w[weight]} * d[to];
    });
    d_in.push_back(std::move(o));
  }
  return d_in;
}

// Positions as the kernels store them, turned into what plain_pool calls `from`.
std::size_t source(const PoolShape& s, std::size_t output, std::uint8_t position) {
  const std::size_t x = output % s.out_width, y = output / s.out_width % s.out_height;
  const std::size_t c = output / s.out_width / s.out_height;
  return (c * s.height + y * s.stride + position / s.size) * s.width + x * s.stride +
         position % s.size;
}

void for_each_case(std::uint32_t seed, int count,
                   const std::function<void(const SpatialKernels&, Case&, std::size_t)>& check) {
  for (Isa isa : available_isas()) {
    const SpatialKernels& kernels = spatial_kernels(isa);
    for (int i = 0; i < count; ++i) {
      Case t(seed + static_cast<std::uint32_t>(i));
      INFO(t.describe(isa));
      check(kernels, t, i % 2 ? t.pick(1, kernels.lanes) : kernels.lanes);
    }
  }
}

constexpr double kTolerance = 5e-5;  // sums of up to a few hundred products of unit normals

}  // namespace

TEST_CASE("gather transposes rows and fills unused lanes with zeros") {
  for_each_case(1, 60, [](const SpatialKernels& k, Case& t, std::size_t count) {
    const std::size_t features = t.pick(1, 70);
    std::vector<std::vector<float>> rows;
    std::vector<const float*> pointers;
    for (std::size_t i = 0; i < count; ++i) rows.push_back(t.values(features));
    for (const auto& row : rows) pointers.push_back(row.data());
    AlignedArray<float> out = rubbish(features * k.lanes);
    k.gather(pointers.data(), count, features, out.data());
    bool same = true;
    for (std::size_t f = 0; f < features; ++f)
      for (std::size_t i = 0; i < k.lanes; ++i)
        same &= out[f * k.lanes + i] == (i < count ? rows[i][f] : 0.0f);
    CHECK(same);
  });
}

TEST_CASE("conv_forward is a cross-correlation plus bias, rectified on request") {
  for_each_case(1000, 300, [](const SpatialKernels& k, Case& t, std::size_t count) {
    const Images in = t.images(count, t.in_size());
    const bool relu = t.pick(0, 1) == 1;
    AlignedArray<float> out = rubbish(t.out_size() * k.lanes);
    k.conv_forward(t.conv, t.w.data(), t.b.data(), block(in, t.in_size(), k.lanes).data(),
                   out.data(), relu);
    CHECK(worst(plain_conv(t, in, relu), out, k.lanes) < kTolerance);
  });
}

TEST_CASE("conv_relu_pool_forward equals convolution, ReLU and pooling one after the other") {
  for_each_case(2000, 300, [](const SpatialKernels& k, Case& t, std::size_t count) {
    const Images in = t.images(count, t.in_size());
    AlignedArray<float> out = rubbish(t.pooled_size() * k.lanes);
    std::vector<std::uint8_t> position(t.pooled_size() * k.lanes, 77);
    k.conv_relu_pool_forward(t.conv, t.pool, t.w.data(), t.b.data(),
                             block(in, t.in_size(), k.lanes).data(), out.data(), position.data());
    const Images conv = plain_conv(t, in, false);
    CHECK(worst(plain_pool(t.pool, plain_conv(t, in, true)).values, out, k.lanes) < kTolerance);
    // The element at the stored position holds the maximum (rounding may decide near-ties).
    bool right = true;
    for (std::size_t n = 0; n < count; ++n) {
      for (std::size_t i = 0; i < t.pooled_size(); ++i) {
        const std::uint8_t at = position[i * k.lanes + n];
        const float value = out[i * k.lanes + n];
        if (at == 255) {
          right &= value == 0;
        } else {
          right &= at < t.pool.size * t.pool.size && value > 0 &&
                   std::abs(conv[n][source(t.pool, i, at)] - value) < kTolerance;
        }
      }
    }
    CHECK(right);
  });
}

TEST_CASE("conv_backward_parameters adds the block's gradients") {
  for_each_case(3000, 300, [](const SpatialKernels& k, Case& t, std::size_t count) {
    const Images in = t.images(count, t.in_size()), d_out = t.images(count, t.out_size());
    Parameters expected = plain_backward_parameters(t, in, d_out);
    std::vector<float> dw = t.values(t.w.size()), db = t.values(t.b.size());
    for (std::size_t i = 0; i < dw.size(); ++i) expected.dw[i] += dw[i];
    for (std::size_t i = 0; i < db.size(); ++i) expected.db[i] += db[i];
    AlignedArray<float> scratch = rubbish(k.conv_scratch(t.conv));
    k.conv_backward_parameters(t.conv, block(in, t.in_size(), k.lanes).data(),
                               block(d_out, t.out_size(), k.lanes).data(), dw.data(), db.data(),
                               scratch.data());
    CHECK(worst(expected.dw, dw) < kTolerance);
    CHECK(worst(expected.db, db) < kTolerance);
  });
}

TEST_CASE("conv_backward_input overwrites d_in with the input's gradient") {
  for_each_case(4000, 300, [](const SpatialKernels& k, Case& t, std::size_t count) {
    const Images d_out = t.images(count, t.out_size());
    AlignedArray<float> d_in = rubbish(t.in_size() * k.lanes);
    k.conv_backward_input(t.conv, t.w.data(), block(d_out, t.out_size(), k.lanes).data(),
                          d_in.data());
    CHECK(worst(plain_backward_input(t, d_out), d_in, k.lanes) < kTolerance);
  });
}

TEST_CASE("pool_forward and pool_backward: the first maximum wins, border rows are dropped") {
  for_each_case(5000, 300, [](const SpatialKernels& k, Case& t, std::size_t count) {
    Images in;  // many ties
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<float> v = t.small_integers(t.out_size());
      in.emplace_back(v.begin(), v.end());
    }
    const Images d_out = t.images(count, t.pooled_size());
    const Pooled expected = plain_pool(t.pool, in);

    AlignedArray<float> out = rubbish(t.pooled_size() * k.lanes);
    std::vector<std::uint8_t> position(t.pooled_size() * k.lanes, 77);
    k.pool_forward(t.pool, block(in, t.out_size(), k.lanes).data(), out.data(), position.data());
    CHECK(worst(expected.values, out, k.lanes) == 0);
    bool right = true;
    for (std::size_t n = 0; n < count; ++n)
      for (std::size_t i = 0; i < t.pooled_size(); ++i)
        right &= source(t.pool, i, position[i * k.lanes + n]) == expected.from[n][i];
    CHECK(right);

    AlignedArray<float> d_in = rubbish(t.out_size() * k.lanes);
    k.pool_backward(t.pool, block(d_out, t.pooled_size(), k.lanes).data(), position.data(),
                    d_in.data());
    CHECK(worst(plain_pool_backward(t.pool, expected, d_out, false), d_in, k.lanes) < 1e-6);
  });
}

// With small integers everything is exact, so ties are ties in both.
TEST_CASE("the fused backward kernels equal pooling, ReLU and convolution backwards") {
  for_each_case(6000, 400, [](const SpatialKernels& k, Case& t, std::size_t count) {
    if (t.pick(0, 1)) {  // the common case has paths of its own
      t.pool.size = t.pool.stride = 2;
      if (t.pool.height < 2 || t.pool.width < 2) return;
      t.pool.out_height = t.pool.height / 2, t.pool.out_width = t.pool.width / 2;
      if (t.pick(0, 1) && t.conv.height >= 3 && t.conv.width >= 3) {
        t.conv.kernel_h = t.conv.kernel_w = 3, t.conv.stride = 1;
        t.conv.out_height = t.pool.height = t.conv.height + 2 * t.conv.padding - 2;
        t.conv.out_width = t.pool.width = t.conv.width + 2 * t.conv.padding - 2;
        if (t.pool.height < 2 || t.pool.width < 2) return;
        t.pool.out_height = t.pool.height / 2, t.pool.out_width = t.pool.width / 2;
      }
    }
    t.w = t.small_integers(t.conv.filters * t.conv.channels * t.conv.kernel_h * t.conv.kernel_w);
    t.b = t.small_integers(t.conv.filters);
    Images in;
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<float> v = t.small_integers(t.in_size());
      in.emplace_back(v.begin(), v.end());
    }
    const Images d_out = t.images(count, t.pooled_size());
    const Pooled pooled = plain_pool(t.pool, plain_conv(t, in, false));
    const Images d_conv = plain_pool_backward(t.pool, pooled, d_out, true);

    const AlignedArray<float> in_block = block(in, t.in_size(), k.lanes);
    const AlignedArray<float> d_block = block(d_out, t.pooled_size(), k.lanes);
    AlignedArray<float> out = rubbish(t.pooled_size() * k.lanes);
    std::vector<std::uint8_t> position(t.pooled_size() * k.lanes, 77);
    k.conv_relu_pool_forward(t.conv, t.pool, t.w.data(), t.b.data(), in_block.data(), out.data(),
                             position.data());
    bool right = true;
    for (std::size_t n = 0; n < count; ++n)
      for (std::size_t i = 0; i < t.pooled_size(); ++i) {
        const std::uint8_t at = position[i * k.lanes + n];
        right &= pooled.values[n][i] > 0 ? source(t.pool, i, at) == pooled.from[n][i] : at == 255;
      }
    CHECK(right);

    AlignedArray<float> scratch = rubbish(k.conv_relu_pool_scratch(t.conv, t.pool));
    std::vector<float> dw(t.w.size()), db(t.b.size());
    k.conv_relu_pool_backward_parameters(t.conv, t.pool, in_block.data(), d_block.data(),
                                         position.data(), dw.data(), db.data(), scratch.data());
    const Parameters expected = plain_backward_parameters(t, in, d_conv);
    CHECK(worst(expected.dw, dw) < kTolerance);
    CHECK(worst(expected.db, db) < kTolerance);

    AlignedArray<float> d_in = rubbish(t.in_size() * k.lanes);
    scratch = rubbish(k.conv_relu_pool_scratch(t.conv, t.pool));
    k.conv_relu_pool_backward_input(t.conv, t.pool, t.w.data(), d_block.data(), position.data(),
                                    d_in.data(), scratch.data());
    CHECK(worst(plain_backward_input(t, d_conv), d_in, k.lanes) < kTolerance);
  });
}

TEST_CASE("gradients of convolution, ReLU and pooling agree with finite differences") {
  // loss = Σ r · pooled, differentiated in double precision by central differences; the kernels'
  // gradients come from float32 forward positions.
  for_each_case(7000, 20, [](const SpatialKernels& k, Case& t, std::size_t count) {
    const Images in = t.images(count, t.in_size()), r = t.images(count, t.pooled_size());
    const auto loss = [&](const Images& x) {
      const Pooled pooled = plain_pool(t.pool, plain_conv(t, x, true));
      double sum = 0;
      for (std::size_t n = 0; n < x.size(); ++n)
        for (std::size_t i = 0; i < r[n].size(); ++i) sum += r[n][i] * pooled.values[n][i];
      return sum;
    };
    const AlignedArray<float> in_block = block(in, t.in_size(), k.lanes);
    const AlignedArray<float> d_block = block(r, t.pooled_size(), k.lanes);
    AlignedArray<float> out = rubbish(t.pooled_size() * k.lanes);
    std::vector<std::uint8_t> position(out.size());
    k.conv_relu_pool_forward(t.conv, t.pool, t.w.data(), t.b.data(), in_block.data(), out.data(),
                             position.data());
    AlignedArray<float> scratch = rubbish(k.conv_relu_pool_scratch(t.conv, t.pool));
    std::vector<float> dw(t.w.size()), db(t.b.size());
    k.conv_relu_pool_backward_parameters(t.conv, t.pool, in_block.data(), d_block.data(),
                                         position.data(), dw.data(), db.data(), scratch.data());
    AlignedArray<float> d_in = rubbish(t.in_size() * k.lanes);
    k.conv_relu_pool_backward_input(t.conv, t.pool, t.w.data(), d_block.data(), position.data(),
                                    d_in.data(), scratch.data());

    const float step = 1.0f / 4096;  // exact in float32, small enough to cross few kinks
    const auto check = [&](double difference, float gradient) {
      return std::abs(difference - gradient) < 0.02 * (1 + std::abs(gradient));
    };
    int wrong = 0, checked = 0;
    for (int trial = 0; trial < 10; ++trial, checked += 2) {
      const std::size_t i = t.pick(0, t.w.size() - 1);
      const float w = t.w[i];
      t.w[i] = w + step;
      const double up = loss(in), high = t.w[i];
      t.w[i] = w - step;
      const double down = loss(in), low = t.w[i];
      t.w[i] = w;
      wrong += !check((up - down) / (high - low), dw[i]);

      const std::size_t n = t.pick(0, count - 1), j = t.pick(0, t.in_size() - 1);
      Images moved = in;
      moved[n][j] = in[n][j] + 1e-5;
      const double right = loss(moved);
      moved[n][j] = in[n][j] - 1e-5;
      wrong += !check((right - loss(moved)) / 2e-5, d_in[j * k.lanes + n]);
    }
    CHECK(wrong * 10 <= checked);  // a kink between the two ends is allowed to disturb a few
  });
}

TEST_CASE("NaN reaches every output that depends on it, and no other image") {
  for_each_case(8000, 100, [](const SpatialKernels& k, Case& t, std::size_t count) {
    Images in = t.images(count, t.in_size());
    const std::size_t image = t.pick(0, count - 1), feature = t.pick(0, t.in_size() - 1);
    for (float nan : {kNaN, -kNaN}) {
      in[image][feature] = nan;
      const AlignedArray<float> in_block = block(in, t.in_size(), k.lanes);
      AlignedArray<float> out = rubbish(t.out_size() * k.lanes);
      k.conv_forward(t.conv, t.w.data(), t.b.data(), in_block.data(), out.data(), true);
      const Images conv = plain_conv(t, in, true);
      CHECK(worst(conv, out, k.lanes) < kTolerance);

      AlignedArray<float> pooled(t.pooled_size() * k.lanes);
      std::vector<std::uint8_t> position(pooled.size());
      k.conv_relu_pool_forward(t.conv, t.pool, t.w.data(), t.b.data(), in_block.data(),
                               pooled.data(), position.data());
      CHECK(worst(plain_pool(t.pool, conv).values, pooled, k.lanes) < kTolerance);
      k.pool_forward(t.pool, out.data(), pooled.data(), position.data());
      CHECK(worst(plain_pool(t.pool, conv).values, pooled, k.lanes) < kTolerance);
    }
  });
}

TEST_CASE("infinite and not-a-number weights are not hidden by ReLU or pooling") {
  for_each_case(9000, 40, [](const SpatialKernels& k, Case& t, std::size_t count) {
    const Images in = t.images(count, t.in_size());
    const float bad[] = {kNaN, -kNaN, std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity()};
    for (float value : bad) {
      t.w[t.pick(0, t.w.size() - 1)] = value;
      AlignedArray<float> pooled(t.pooled_size() * k.lanes);
      std::vector<std::uint8_t> position(pooled.size());
      k.conv_relu_pool_forward(t.conv, t.pool, t.w.data(), t.b.data(),
                               block(in, t.in_size(), k.lanes).data(), pooled.data(),
                               position.data());
      const Images expected = plain_pool(t.pool, plain_conv(t, in, true)).values;
      bool same = true;
      for (std::size_t n = 0; n < count; ++n)
        for (std::size_t i = 0; i < expected[n].size(); ++i) {
          const float got = pooled[i * k.lanes + n];
          same &= std::isnan(expected[n][i]) == std::isnan(got) &&
                  std::isinf(expected[n][i]) == std::isinf(got);
        }
      CHECK(same);
    }
  });
}
