// The matrix products of the networks, ours and those of the libraries named on the command line,
// by one thread, in turns on the same buffers: a plain product each, with the memory layout and the
// row strides that the network gives it (model/dense_chain.cc).
//
//   bench_gemm <seconds per figure> [MKL|OpenBLAS|oneDNN=<shared library>]...
#include <dlfcn.h>
#include <sched.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ceiling.h"
#include "json_line.h"
#include "leashed/base/aligned.h"
#include "leashed/kernels/dense.h"

using namespace leashed;

namespace {

using Product = std::function<void(const Gemm&)>;

struct Library {
  std::string name;
  Product product;
};

template <class F>
F symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) throw std::runtime_error(dlerror());
  return reinterpret_cast<F>(found);
}

// cblas_sgemm with 32-bit integers, of whatever name.
Product cblas(void* library, const char* name) {
  using Sgemm =
      void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
               const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
  constexpr int kRowMajor = 101, kNo = 111, kTranspose = 112;
  return [sgemm = symbol<Sgemm>(library, name)](const Gemm& g) {
    const bool columns = g.a_row == 1;
    sgemm(kRowMajor, columns ? kTranspose : kNo, kNo, static_cast<int>(g.m), static_cast<int>(g.n),
          static_cast<int>(g.k), 1, g.a, static_cast<int>(columns ? g.a_col : g.a_row), g.b,
          static_cast<int>(g.ldb), 0, g.c, static_cast<int>(g.ldc));
  };
}

Product onednn(void* library) {
  using Sgemm = int (*)(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n,
                        std::int64_t k, float alpha, const float* a, std::int64_t lda,
                        const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);
  return [sgemm = symbol<Sgemm>(library, "dnnl_sgemm")](const Gemm& g) {
    const bool columns = g.a_row == 1;
    const auto i = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    if (sgemm(columns ? 'T' : 'N', 'N', i(g.m), i(g.n), i(g.k), 1, g.a,
              i(columns ? g.a_col : g.a_row), g.b, i(g.ldb), 0, g.c, i(g.ldc)) != 0) {
      throw std::runtime_error("dnnl_sgemm failed");
    }
  };
}

Library load(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const std::string name = argument.substr(0, equals), path = argument.substr(equals + 1);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  if (name == "MKL") return {name, cblas(library, "cblas_sgemm")};
  if (name == "OpenBLAS") return {name, cblas(library, "scipy_cblas_sgemm")};
  if (name == "oneDNN") return {name, onednn(library)};
  throw std::runtime_error("unknown library " + name);
}

// Every library has its own way of being told to use one thread; one processor to run on is what
// they all obey. They look at these when they are loaded.
void use_one_thread() {
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    setenv(name, "1", 1);
  }
  setenv("MKL_THREADING_LAYER", "SEQUENTIAL", 1);
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  sched_setaffinity(0, sizeof here, &here);
}

// As model/row_stride.h.
std::size_t stride(std::size_t n) { return ((n + 15) / 16 | 1) * 16; }

struct Shape {
  std::string
      kind;  // forward: Y = X W; dW = Xᵀ dY; dX = dY Wᵀ, with Wᵀ at hand as dense_chain has it
  std::size_t m, n, k;
  auto operator<=>(const Shape&) const = default;

  Gemm gemm(const float* a, const float* b, float* c) const {
    const bool columns = kind == "dW";
    return {.m = m,
            .n = n,
            .k = k,
            .a = a,
            .a_row = columns ? 1 : stride(k),
            .a_col = columns ? stride(m) : 1,
            .b = b,
            .ldb = kind == "forward" ? n : stride(n),
            .c = c,
            .ldc = columns ? n : stride(n)};
  }
};

// The shapes of dense layers of these widths at a batch size, and how often each occurs.
void add_shapes(std::map<Shape, std::size_t>& shapes, const std::vector<std::size_t>& widths,
                std::size_t batch, bool input_gradient) {
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::size_t in = widths[i], out = widths[i + 1];
    ++shapes[{"forward", batch, out, in}];
    ++shapes[{"dW", in, out, batch}];
    if (i > 0 || input_gradient) ++shapes[{"dX", batch, in, out}];
  }
}

AlignedArray<float> random_values(std::size_t n) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> draw(-1, 1);
  AlignedArray<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = draw(random);
  return values;
}

class Bench {
 public:
  Bench(std::vector<Library> libraries, double seconds)
      : libraries_(std::move(libraries)), seconds_(seconds) {}

  void run(const char* network, std::size_t batch, const Shape& shape, std::size_t count) const {
    const std::size_t largest = std::max({shape.m, shape.n, shape.k}) + 16;
    const auto a = random_values(stride(largest) * std::max(shape.m, shape.k));
    const auto b = random_values(stride(shape.n) * shape.k);
    AlignedArray<float> c(stride(shape.n) * shape.m), reference(c.size());
    AlignedArray<float> scratch(kernels_.gemm_scratch(std::max(shape.m, shape.k)));
    const Gemm gemm = shape.gemm(a.data(), b.data(), c.data());

    const double flops = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
    const double ceiling_flops = bench::multiply_adds(default_isa(), 1) * kCeilingRounds;
    std::vector<bench::Work> works = {
        [] { bench::multiply_adds(default_isa(), kCeilingRounds); },
        [&] { kernels_.gemm(gemm, scratch.data()); },
    };
    works[1]();
    std::copy_n(c.data(), c.size(), reference.data());
    for (const Library& library : libraries_) {
      library.product(gemm);
      require_equal(library.name, shape, c, reference);
      works.emplace_back([&] { library.product(gemm); });
    }
    const bench::Turns turns =
        bench::take_turns(works, seconds_ * static_cast<double>(works.size()));

    bench::JsonLine line("gemm");
    line.add("network", network).add("batch_size", batch).add("kind", shape.kind);
    line.add("m", shape.m).add("n", shape.n).add("k", shape.k).add("count", count);
    line.add("cpu_share", turns.cpu_share);
    line.add("ceiling", ceiling_flops / turns.median_seconds(0) * 1e-9);
    line.add("leashed", flops / turns.median_seconds(1) * 1e-9);
    for (std::size_t i = 0; i < libraries_.size(); ++i) {
      line.add(libraries_[i].name, flops / turns.median_seconds(i + 2) * 1e-9);
      line.add("ratio to " + libraries_[i].name, turns.median_ratio(i + 2, 1));
    }
  }

 private:
  static constexpr std::size_t kCeilingRounds = 100000;

  static void require_equal(const std::string& name, const Shape& shape,
                            const AlignedArray<float>& c, const AlignedArray<float>& reference) {
    const std::size_t ld = shape.kind == "dW" ? shape.n : stride(shape.n);
    const double tolerance = 1e-5 * static_cast<double>(shape.k);
    for (std::size_t i = 0; i < shape.m; ++i) {
      for (std::size_t j = 0; j < shape.n; ++j) {
        if (!(std::abs(c[i * ld + j] - reference[i * ld + j]) <= tolerance)) {
          throw std::runtime_error(name + " computes something else than leashed");
        }
      }
    }
  }

  const std::vector<Library> libraries_;
  const double seconds_;
  const DenseKernels& kernels_ = dense_kernels(default_isa());
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error("usage: bench_gemm <seconds> [name=library]...");
  use_one_thread();
  std::vector<Library> libraries;
  for (int i = 2; i < argc; ++i) libraries.push_back(load(argv[i]));
  const Bench bench(std::move(libraries), std::atof(argv[1]));

  const double process = bench::process_seconds(), thread = leashed::thread_seconds();
  for (const std::size_t batch : {16, 64, 512}) {
    // DLRM: 13 numbers and 26 embeddings of 16; the products of all pairs of the 27 vectors, beside
    // the bottom network's output, are the top network's 367 inputs.
    std::map<std::string, std::map<Shape, std::size_t>> networks;
    add_shapes(networks["MLP"], {784, 128, 128, 128, 10}, batch, false);
    add_shapes(networks["CNN"], {200, 128, 10}, batch, true);
    add_shapes(networks["DLRM"], {13, 64, 32, 16}, batch, false);
    add_shapes(networks["DLRM"], {367, 64, 32, 1}, batch, true);
    for (const auto& [network, shapes] : networks) {
      for (const auto& [shape, count] : shapes) bench.run(network.c_str(), batch, shape, count);
    }
  }
  const double others = (bench::process_seconds() - process) / (leashed::thread_seconds() - thread);
  if (others > 1.05) throw std::runtime_error("a library used more than one thread");
} catch (const std::exception& error) {
  return std::fprintf(stderr, "bench_gemm: %s\n", error.what()), 1;
}
