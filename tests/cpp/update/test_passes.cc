// The fused passes against the rules' formulas in double precision, at every instruction-set level.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "leashed/base/aligned.h"
#include "leashed/update/passes.h"
#include "leashed/update/rules.h"

using namespace leashed;

namespace {

constexpr std::size_t kLengths[] = {0, 1, 3, 15, 16, 17, 33, 64, 1000, 1025};

// A buffer of theta and states with room behind, aligned as a discipline's.
struct Buffer {
  explicit Buffer(std::size_t n, std::size_t states, unsigned seed = 0)
      : stride((n + 15) / 16 * 16 + 16), values((states + 1) * stride) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = i % stride >= n ? 7.0f : i < stride ? normal(random) : std::abs(normal(random));
    }
  }
  Buffer(const Buffer& other) : stride(other.stride), values(other.values.size()) {
    std::copy_n(other.values.data(), values.size(), values.data());
  }
  bool operator==(const Buffer& other) const {
    return std::equal(values.data(), values.data() + values.size(), other.values.data());
  }

  std::size_t stride;
  AlignedArray<float> values;
};

Coefficients some_coefficients(bool bare) {
  Coefficients c;
  c.scale = 0.6f;
  if (!bare) {
    c.clip = 0.9f;
    c.coupled = 0.05f;
    c.shrink = 0.99f;
    c.keep = 0.7f;
  }
  c.lr = 0.3f;
  c.step = 0.2f;
  c.momentum = 0.8f;
  c.add1 = 0.1f;
  c.add2 = 0.05f;
  c.epsilon = 1e-3f;
  return c;
}

// Of one parameter in double precision: what is subtracted from theta, and the states s changed.
// Squares have been multiplied by `keep`.
using Formula = double (*)(double g, std::vector<double>& s, const Coefficients& c);

double mean(double old, double added, float weight) {
  return (1 - double{weight}) * old + double{weight} * added;
}
double over_root(float lr, double x, double v, const Coefficients& c) {
  return double{lr} * x / (std::sqrt(v) + double{c.epsilon});
}

const std::map<Arithmetic, Formula> kFormulas = {
    {kArithmetic<Sgd>,
     [](double g, std::vector<double>&, const Coefficients& c) { return double{c.lr} * g; }},
    {kArithmetic<Momentum>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] = double{c.momentum} * s[0] + g;
       return double{c.lr} * s[0];
     }},
    {kArithmetic<Nesterov>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] = double{c.momentum} * s[0] + g;
       return double{c.lr} * (g + double{c.momentum} * s[0]);
     }},
    {kArithmetic<Adagrad>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] += g * g;
       return over_root(c.lr, g, s[0], c);
     }},
    {kArithmetic<AdagradPrinted>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] += g * g;
       return double{c.lr} * g / std::sqrt(s[0] + double{c.epsilon});
     }},
    {kArithmetic<Rmsprop>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] = mean(s[0], g * g, c.add2);
       return over_root(c.lr, g, s[0], c);
     }},
    {kArithmetic<CenteredRmsprop>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] = mean(s[0], g * g, c.add2);
       s[1] = mean(s[1], g, c.add2);
       return over_root(c.lr, g, std::fmax(s[0] - s[1] * s[1], 0), c);
     }},
    {kArithmetic<Adam>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] = mean(s[0], g, c.add1);
       s[1] = mean(s[1], g * g, c.add2);
       return over_root(c.step, s[0], s[1], c);
     }},
    {kArithmetic<Amsgrad>,
     [](double g, std::vector<double>& s, const Coefficients& c) {
       s[0] = mean(s[0], g, c.add1);
       s[1] = mean(s[1], g * g, c.add2);
       s[2] = std::fmax(s[2], s[1]);
       return over_root(c.step, s[0], s[2], c);
     }},
};
// (What they subtract, or keep, depends on theta.)
double averaged(double theta, double g, std::vector<double>& s, const Coefficients& c) {
  const double change = double{c.lr} * g;
  s[0] = mean(s[0], theta - change, c.add1);
  return change;
}
double ftrl(double theta, double g, std::vector<double>& s, const Coefficients& c) {
  const double l1 = c.add1, pull = g + s[0];
  s[1] += g * g;
  const double curvature = (std::sqrt(s[1]) + double{c.epsilon}) / double{c.lr};
  const double z = pull - curvature * theta;
  s[0] = std::fmin(std::fmax(z, -l1), l1);
  return theta - (s[0] - z) / curvature;
}
const std::map<Arithmetic, std::size_t> kSquares = {
    {kArithmetic<Sgd>, 0},      {kArithmetic<AveragedSgd>, 0},
    {kArithmetic<Momentum>, 0}, {kArithmetic<Nesterov>, 0},
    {kArithmetic<Adagrad>, 1},  {kArithmetic<AdagradPrinted>, 1},
    {kArithmetic<Rmsprop>, 1},  {kArithmetic<CenteredRmsprop>, 0},
    {kArithmetic<Adam>, 1},     {kArithmetic<Amsgrad>, 2},
    {kArithmetic<Ftrl>, 0},
};

// One parameter: theta and its states after the update.
std::vector<double> reference(Arithmetic rule, double theta, double g, std::vector<double> s,
                              const Coefficients& c) {
  const double clip = c.clip;
  g = double{c.scale} * std::fmin(std::fmax(g, -clip), clip) + double{c.coupled} * theta;
  for (std::size_t k = s.size() - kSquares.at(rule); k < s.size(); ++k) s[k] *= double{c.keep};
  const double shrunk = double{c.shrink} * theta;
  const double change = rule == kArithmetic<Ftrl>          ? ftrl(shrunk, g, s, c)
                        : rule == kArithmetic<AveragedSgd> ? averaged(shrunk, g, s, c)
                                                           : kFormulas.at(rule)(g, s, c);
  s.insert(s.begin(), shrunk - change);
  return s;
}

void check_passes(Isa isa, Arithmetic rule, Coefficients c, std::size_t n) {
  if (rule == kArithmetic<Ftrl>) c.step = 1 / c.lr;
  const RulePasses& passes = pass_table(isa)[rule];
  Buffer current(n, passes.states, 1);
  const bool adams = rule == kArithmetic<Adam> || rule == kArithmetic<Amsgrad>;
  if (rule == kArithmetic<CenteredRmsprop> || adams) {  // moments that there are in one thread
    for (std::size_t i = 0; i < n; ++i) {
      const float mean = current.values[(adams ? 1 : 2) * current.stride + i];
      current.values[(adams ? 2 : 1) * current.stride + i] += mean * mean;
    }
  }
  const Buffer gradient(n, 0, 2);
  const float* g = gradient.values.data();
  if (rule == kArithmetic<Ftrl>) {  // within what is allowed
    for (std::size_t i = 0; i < n; ++i) {
      float& residual = current.values[current.stride + i];
      residual = std::min(residual, c.add1) * (current.values[i] > 0 ? -1 : 1);
    }
  }
  Buffer next(current);
  const auto cached = passes(Mode::cached, false, c);
  CHECK(cached(next.values.data(), current.values.data(), current.stride, g, 0, n, c) == 0);
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> states;
    for (std::size_t k = 1; k <= passes.states; ++k) {
      states.push_back(double{current.values[k * current.stride + i]});
    }
    const double theta = current.values[i];
    const auto exact = reference(rule, theta, double{g[i]}, states, c);
    REQUIRE(exact.size() == passes.states + 1);
    for (std::size_t k = 0; k <= passes.states; ++k) {
      const double found = next.values[k * next.stride + i];
      REQUIRE(found == doctest::Approx(exact[k]).epsilon(1e-5));
    }
    squares += (exact[0] - theta) * (exact[0] - theta);
  }
  for (std::size_t k = 0; k <= passes.states; ++k) {
    REQUIRE(next.values[k * next.stride + n] == 7.0f);  // nothing behind is touched
  }
  // The others write the same bits: to another buffer, in place, and in pieces that begin anywhere.
  for (const Mode mode : {Mode::cached, Mode::streamed, Mode::racy, Mode::racy_streamed}) {
    for (const bool measure : {false, true}) {
      const Pass pass = passes(mode, measure, c);
      Buffer other(current);
      float* to = other.values.data();
      const float* from = mode == Mode::streamed ? current.values.data() : to;
      const std::size_t third = n / 3;
      double measured = pass(to, from, other.stride, g, 0, third, c);
      measured += pass(to, from, other.stride, g, third, n, c);
      REQUIRE(other == next);
      if (measure) REQUIRE(measured == doctest::Approx(squares).epsilon(1e-4));
    }
  }
}

}  // namespace

TEST_CASE("every pass follows its formula at any length, and all give the same bits") {
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (std::size_t place = 0; place < Rules::kCount; ++place) {
      CAPTURE(place);
      for (const bool bare : {false, true}) {
        CAPTURE(bare);
        for (const std::size_t n : kLengths) {
          CAPTURE(n);
          check_passes(isa, Arithmetic{place}, some_coefficients(bare), n);
        }
      }
    }
  }
}

TEST_CASE("the root of nothing divides nothing, and NaN shows") {
  Coefficients c;
  c.lr = 0.1f;
  c.epsilon = 1e-10f;
  for (const Isa isa : available_isas()) {
    Buffer buffer(40, 1, 1);
    Buffer gradient(40, 0, 2);
    std::fill_n(buffer.values.data() + buffer.stride, 40, 0.0f);
    const Buffer before(buffer);
    for (std::size_t i = 0; i < 40; ++i) gradient.values[i] = i % 3 ? 0.0f : 1e-30f;
    gradient.values[5] = gradient.values[39] = std::nanf("");
    float* values = buffer.values.data();
    pass_table(isa)[kArithmetic<Adagrad>](Mode::cached, false, c)(values, values, buffer.stride,
                                                                  gradient.values.data(), 0, 40, c);
    for (std::size_t i = 0; i < 40; ++i) {
      CAPTURE(i);
      if (i == 5 || i == 39) {
        CHECK(std::isnan(values[i]));
      } else {
        CHECK(values[i] == before.values[i]);
      }
    }
  }
}

TEST_CASE("squares that overflow are infinite, and what they divide is 0, at every level") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::size_t n = 40;
  for (const Isa isa : available_isas()) {
    CAPTURE(isa_name(isa));
    for (const auto& [rule, squares] : kSquares) {
      const bool centered = rule == kArithmetic<CenteredRmsprop>;
      if (squares == 0 && !centered) continue;
      CAPTURE(static_cast<std::size_t>(rule));
      const RulePasses& passes = pass_table(isa)[rule];
      Coefficients c = some_coefficients(true);
      c.scale = 1;
      Buffer buffer(n, passes.states, 1);
      std::fill(buffer.values.data() + buffer.stride, buffer.values.data() + buffer.values.size(),
                0.0f);
      const Buffer before(buffer);
      Buffer huge(n, 0, 2), small(n, 0, 3);
      for (std::size_t i = 0; i < n; i += 3) huge.values[i] = i % 2 ? 1e20f : -1e30f;
      float* values = buffer.values.data();
      for (int step = 0; step < 60; ++step) {  // the mean gradient is infinite, squared, too
        const float* g = (step < 40 ? huge : small).values.data();
        const Mode mode = step % 2 ? Mode::racy : Mode::cached;
        passes(mode, false, c)(values, values, buffer.stride, g, 0, n, c);
      }
      for (std::size_t i = 0; i < n; ++i) {
        CAPTURE(i);
        REQUIRE(std::isfinite(values[i]));
        REQUIRE((values[i] == before.values[i]) == (i % 3 == 0));
        for (std::size_t k = passes.states - squares; k < passes.states; ++k) {
          REQUIRE((values[(k + 1) * buffer.stride + i] == kInfinity) == (i % 3 == 0));
        }
      }
    }
  }
}

TEST_CASE("numbers that say nothing leave plain SGD to the bit") {
  for (const Isa isa : available_isas()) {
    const std::size_t n = 1003;
    const Buffer current(n, 0, 1), gradient(n, 0, 2);
    Buffer next(current);
    Coefficients c;
    c.lr = 0.25f;  // exact, so that fusing the multiplication changes nothing
    pass_table(isa)[kArithmetic<Sgd>](Mode::cached, false, c)(
        next.values.data(), current.values.data(), current.stride, gradient.values.data(), 0, n, c);
    for (std::size_t i = 0; i < n; ++i) {
      REQUIRE(next.values[i] == current.values[i] - 0.25f * gradient.values[i]);
    }
  }
}
