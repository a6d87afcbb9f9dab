// Graphs of every instruction-set level against reference/graph.h: losses, and gradients of
// parameters and rows against its central differences; every node, every pooling.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/graph/graph.h"
#include "reference/graph.h"
#include "replaced_new.h"
#include "sanitized.h"

namespace {

std::atomic<std::size_t> allocations{0};

void allocating() { allocations.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

namespace {

using leashed::Choice;
using leashed::Graph;
using leashed::Isa;
using leashed::Node;
using leashed::TableShape;
using reference::Column;
using reference::Doubles;

const std::atomic<bool> kGoOn{false};
constexpr std::size_t kRows = 6;  // of each table: few, so that ids repeat
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A list of nodes, and the dims of the tables that they read.
struct Nodes {
  std::vector<Node> list;
  std::vector<std::size_t> dims;

  std::size_t add(Choice kind, std::vector<std::size_t> inputs = {}) {
    list.push_back({std::move(kind), std::move(inputs)});
    return list.size() - 1;
  }
  std::size_t input(double features) { return add({"input", {{"features", features}}}); }
  std::size_t dense(std::size_t from, double outputs) {
    return add({"dense", {{"outputs", outputs}}}, {from});
  }
  std::size_t relu(std::size_t from) { return add({"relu"}, {from}); }
  std::size_t table(std::size_t dim) {
    dims.push_back(dim);
    return dims.size() - 1;
  }
  std::size_t embedding(std::size_t table, const char* pooling = "sum", double length = 3) {
    Choice kind{"embedding", {{"table", static_cast<double>(table)}, {"length", length}}};
    kind.parts.emplace("pooling", Choice{pooling});
    return add(std::move(kind));
  }
  std::vector<TableShape> tables() const {
    std::vector<TableShape> shapes;
    for (std::size_t t = 0; t < dims.size(); ++t) shapes.push_back({std::to_string(t), dims[t]});
    return shapes;
  }
};

enum class Ids { one, bags, weighted };

// A graph with random parameters, rows and batch.
struct Problem {
  Problem(const Nodes& of, std::size_t size, Ids ids, Isa isa, const char* loss = "log_loss")
      : nodes(of), graph(of.list, of.tables(), isa, loss), workspace(graph.make_workspace()) {
    std::mt19937 random(static_cast<unsigned>(size));
    std::normal_distribution<float> draw(0, 0.5f);
    theta.resize(graph.dimension());
    for (float& v : theta) v = draw(random);
    for (const std::size_t dim : nodes.dims) {
      rows.emplace_back(kRows * dim);
      for (float& v : rows.back()) v = draw(random);
    }
    x.resize(size * graph.features());
    for (float& v : x) v = draw(random);
    for (std::size_t i = 0; i < size; ++i) {
      pointers.push_back(x.data() + i * graph.features());
      labels.push_back(static_cast<std::int32_t>(random() % 2));
    }
    for (std::size_t f = 0; f < graph.features_of_tables().size(); ++f) {
      Column column;
      std::size_t entries = size;
      if (ids != Ids::one) {
        entries = 0;
        column.offsets.push_back(0);
        for (std::size_t i = 0; i < size; ++i) {
          entries += i == size / 2 ? 0 : random() % 5;
          column.offsets.push_back(static_cast<std::uint32_t>(entries));
        }
      }
      for (std::size_t e = 0; e < entries; ++e) {
        column.ids.push_back(random() % kRows);
        if (ids == Ids::weighted) column.weights.push_back(draw(random) + 1);
      }
      columns.push_back(std::move(column));
    }
    make_view();
  }

  // Every row of a table is among the batch's, the last one first.
  void make_view() {
    view.rows = pointers.data();
    view.targets = labels.data();
    view.size = labels.size();
    for (const Column& column : columns) {
      places.emplace_back();
      for (const std::uint64_t id : column.ids) {
        places.back().push_back(static_cast<std::uint32_t>(kRows - 1 - id));
      }
      views.push_back({column.ids.data(), column.offsets.empty() ? nullptr : column.offsets.data(),
                       column.weights.empty() ? nullptr : column.weights.data()});
    }
    for (const auto& each : places) place_pointers.push_back(each.data());
    values.resize(nodes.dims.size());
    for (std::size_t t = 0; t < nodes.dims.size(); ++t) {
      const std::size_t dim = nodes.dims[t];
      for (std::size_t i = kRows; i-- > 0;) values[t].push_back(rows[t].data() + i * dim);
      gradients.emplace_back(kRows * (dim + 3));
      tables.push_back({kRows, dim, dim + 3, values[t].data(), gradients[t].data()});
    }
    view.columns = views;
    view.tables = tables;
    view.places = place_pointers.data();
  }

  std::vector<float> gradient(float* loss = nullptr) {
    for (auto& each : gradients) std::fill(each.begin(), each.end(), 0.0f);
    std::vector<float> g(theta.size(), kNan);
    const float l = graph.gradient(theta.data(), view, g.data(), *workspace, kGoOn);
    if (loss) *loss = l;
    return g;
  }

  double reference_loss(const Doubles& at, const std::vector<Doubles>& with) const {
    double sum = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const double o =
          reference::outputs({nodes.list, nodes.dims, columns, i, pointers[i]}, at, with)[0];
      sum += std::log1p(std::exp(-std::abs(o))) + std::max(o, 0.0) - (labels[i] ? o : 0);
    }
    return sum / static_cast<double>(labels.size());
  }

  const Nodes nodes;
  const Graph graph;
  std::unique_ptr<leashed::Workspace> workspace;
  std::vector<float> theta, x;
  std::vector<std::vector<float>> rows;
  std::vector<const float*> pointers;
  std::vector<std::int32_t> labels;
  std::vector<Column> columns;
  std::vector<leashed::IdColumn> views;
  std::vector<std::vector<std::uint32_t>> places;
  std::vector<const std::uint32_t*> place_pointers;
  std::vector<std::vector<const float*>> values;
  std::vector<std::vector<float>> gradients;
  std::vector<leashed::TableRows> tables;
  leashed::BatchView view{nullptr, leashed::Targets(), 0};
};

// Some of the parameters are enough where there are many, and for a sanitizer, which looks at what
// is computed here by the reference too, a few.
const std::size_t kParameters = sanitized() ? 15 : 150;
const std::size_t kFloatsOfRows = sanitized() ? 4 : 40;

void check_gradient(Problem& p) {
  float loss = 0;
  const std::vector<float> g = p.gradient(&loss);
  Doubles theta(p.theta.begin(), p.theta.end());
  std::vector<Doubles> rows;
  for (const auto& table : p.rows) rows.emplace_back(table.begin(), table.end());
  CHECK(loss == doctest::Approx(p.reference_loss(theta, rows)).epsilon(1e-5));

  // Small: a ReLU or a maximum must not change sides within it.
  constexpr double kStep = 1e-8;
  const auto slope = [&](double& at) {
    const double old = at;
    at = old + kStep;
    const double up = p.reference_loss(theta, rows);
    at = old - kStep;
    const double down = p.reference_loss(theta, rows);
    at = old;
    return (up - down) / (2 * kStep);
  };
  double worst = 0, largest = 1;
  const auto compare = [&](float got, double& at) {
    const double expected = slope(at);
    largest = std::max(largest, std::abs(expected));
    worst = std::max(worst, std::abs(got - expected));
  };
  const std::size_t step = 1 + theta.size() / kParameters;
  for (std::size_t i = 0; i < theta.size(); i += step) compare(g[i], theta[i]);
  for (std::size_t t = 0; t < rows.size(); ++t) {
    const std::size_t dim = p.nodes.dims[t], hop = 1 + rows[t].size() / kFloatsOfRows;
    for (std::size_t i = 0; i < rows[t].size(); i += hop) {
      const std::size_t place = kRows - 1 - i / dim;
      compare(p.gradients[t][place * (dim + 3) + i % dim], rows[t][i]);
    }
    bool padding_touched = false;
    for (std::size_t place = 0; place < kRows; ++place) {
      for (std::size_t k = dim; k < dim + 3; ++k) {
        padding_touched |= p.gradients[t][place * (dim + 3) + k] != 0;
      }
    }
    CHECK_FALSE(padding_touched);
  }
  CHECK(worst < 2e-5 * largest);
}

void check_everywhere(const Nodes& nodes, std::size_t size = 7) {
  for (Isa isa : leashed::available_isas()) {
    for (Ids ids : {Ids::one, Ids::bags, Ids::weighted}) {
      INFO(isa_name(isa), " ids=", static_cast<int>(ids));
      Problem problem(nodes, size, ids, isa);
      check_gradient(problem);
    }
  }
}

// `count` vectors of width `dim`, the first from dense features.
std::vector<std::size_t> vectors_of(Nodes& nodes, std::size_t count, std::size_t dim) {
  std::vector<std::size_t> vectors = {nodes.dense(nodes.input(3), static_cast<double>(dim))};
  while (vectors.size() < count) vectors.push_back(nodes.embedding(nodes.table(dim)));
  return vectors;
}

TEST_CASE("dot interaction of every dimension and number of vectors") {
  for (std::size_t dim : {1, 4, 8, 10, 16, 32, 64}) {
    INFO("dim=", dim);
    Nodes nodes;
    const auto vectors = vectors_of(nodes, 5, dim);
    nodes.dense(nodes.add({"dot"}, vectors), 1);
    check_everywhere(nodes, 3);
  }
  for (std::size_t count : {2, 3, 9, 17, 18, 27, 33}) {
    INFO("count=", count);
    Nodes nodes;
    const auto vectors = vectors_of(nodes, count, 4);
    nodes.dense(nodes.add({"dot"}, vectors), 1);
    check_everywhere(nodes, 2);
  }
}

TEST_CASE("dot interaction beside its first vector, as in DLRM, over micro-batches") {
  Nodes nodes;
  auto vectors = vectors_of(nodes, 6, 10);
  vectors[0] = nodes.relu(vectors[0]);
  // The order in which nodes come is free where each comes after those it reads.
  const std::size_t dot = nodes.add({"dot"}, vectors);
  const std::size_t joined = nodes.add({"concat"}, {vectors[0], dot});
  nodes.dense(nodes.relu(nodes.dense(joined, 5)), 1);
  check_everywhere(nodes, 1);
  check_everywhere(nodes, 70);
}

TEST_CASE("second-order term of a factorisation machine") {
  for (std::size_t dim : {1, 5, 16, 33}) {
    Nodes nodes;
    const auto vectors = vectors_of(nodes, 4, dim);
    nodes.add({"fm"}, vectors);
    check_everywhere(nodes);
  }
}

TEST_CASE("cross layers") {
  Nodes nodes;
  const std::size_t x = nodes.input(4), e = nodes.embedding(nodes.table(15));
  const std::size_t x0 = nodes.add({"concat"}, {x, e});
  const std::size_t first = nodes.add({"cross"}, {x0, x0});
  const std::size_t second = nodes.add({"cross"}, {x0, first});
  nodes.dense(nodes.add({"concat"}, {second, nodes.relu(nodes.dense(x0, 6))}), 1);
  check_everywhere(nodes);
}

TEST_CASE("sums, products, ReLU alone, values that several nodes read") {
  Nodes nodes;
  const std::size_t x = nodes.input(5), table = nodes.table(5);
  const std::size_t a = nodes.embedding(table), b = nodes.embedding(table);
  const std::size_t sum = nodes.add({"sum"}, {x, a, b, a});
  const std::size_t product = nodes.add({"product"}, {a, sum});
  const std::size_t square = nodes.add({"product"}, {product, product});
  const std::size_t positive = nodes.relu(sum);
  const std::size_t joined = nodes.add({"concat"}, {a, positive, a, square, x});
  const std::size_t again = nodes.add({"concat"}, {joined, product});
  nodes.add({"sum"}, {nodes.dense(again, 1), nodes.dense(nodes.relu(joined), 1)});
  check_everywhere(nodes);
}

TEST_CASE("tanh and sigmoid behind dense layers, alone, and of values that others read") {
  Nodes nodes;
  const std::size_t x = nodes.input(5), a = nodes.embedding(nodes.table(5));
  const std::size_t sum = nodes.add({"sum"}, {x, a});
  const std::size_t curved = nodes.add({"tanh"}, {sum});
  const std::size_t deep = nodes.add({"sigmoid"}, {nodes.dense(curved, 18)});
  const std::size_t twice = nodes.add({"tanh"}, {nodes.relu(nodes.dense(deep, 5))});
  const std::size_t read = nodes.dense(sum, 5);
  const std::size_t product = nodes.add({"product"}, {nodes.add({"sigmoid"}, {read}), read});
  nodes.dense(nodes.add({"concat"}, {twice, product, curved}), 1);
  check_everywhere(nodes, 1);
  check_everywhere(nodes, 70);
}

TEST_CASE("a value is read after it was put beside others") {
  Nodes nodes;
  const std::size_t e = nodes.embedding(nodes.table(6));
  const std::size_t joined = nodes.add({"concat"}, {nodes.input(3), e});
  const std::size_t deep = nodes.dense(joined, 6);
  nodes.dense(nodes.add({"product"}, {deep, e}), 1);
  check_everywhere(nodes);
}

TEST_CASE("every pooling, of one table and of several") {
  for (const char* pooling : {"sum", "mean", "max", "sequence"}) {
    for (std::size_t dim : {3, 16, 20}) {
      INFO(std::string(pooling), " dim=", dim);
      Nodes nodes;
      const std::size_t shared = nodes.table(dim), other = nodes.table(dim);
      const std::size_t a = nodes.embedding(shared, pooling), b = nodes.embedding(shared, pooling);
      const std::size_t c = nodes.embedding(other, pooling);
      nodes.dense(nodes.add({"concat"}, {a, b, c}), 1);
      check_everywhere(nodes);
    }
  }
}

// A query as wide as the keys, and these: a sequence, or two side by side.
struct Attended {
  std::size_t query, keys;
};
Attended attended_of(Nodes& nodes, std::size_t dim, bool zipped) {
  const std::size_t table = nodes.table(dim);
  std::size_t keys = nodes.embedding(table, "sequence"), query = nodes.embedding(table);
  if (zipped) {
    const std::size_t other = nodes.table(dim + 1);
    keys = nodes.add({"zip"}, {keys, nodes.embedding(other, "sequence")});
    query = nodes.add({"concat"}, {query, nodes.embedding(other)});
  }
  return {query, keys};
}
Choice unit_of(std::vector<double> hidden, bool softmax) {
  Choice kind{"attention_unit", {{"softmax", softmax ? 1 : 0}}};
  kind.tables.emplace("hidden", std::move(hidden));
  return kind;
}

TEST_CASE("attention units over sequences of no, some and all steps") {
  for (std::size_t dim : {1, 6, 20}) {
    for (const bool softmax : {false, true}) {
      INFO("dim=", dim, " softmax=", softmax);
      Nodes nodes;
      const auto [query, keys] = attended_of(nodes, dim, dim == 6);
      const auto hidden = dim == 20 ? std::vector<double>{40} : std::vector<double>{9, 5};
      const std::size_t scores = nodes.add(unit_of(hidden, softmax), {query, keys});
      const std::size_t pooled = nodes.add({"attention_pool"}, {scores, keys});
      nodes.dense(nodes.add({"concat"}, {query, pooled, scores}), 1);
      check_everywhere(nodes, dim == 6 ? 67 : 7);
    }
  }
}

TEST_CASE("gated units over sequences of no, some and all steps") {
  for (std::size_t units : {1, 7, 18}) {
    for (const bool zipped : {false, true}) {
      INFO("units=", units, " zipped=", zipped);
      Nodes nodes;
      const auto [query, keys] = attended_of(nodes, 5, zipped);
      const Choice gru{"gru", {{"units", static_cast<double>(units)}}};
      const Choice augru{"augru", {{"units", static_cast<double>(units + 1)}}};
      const std::size_t states = nodes.add(gru, {keys});
      const std::size_t projected = nodes.dense(query, static_cast<double>(units));
      const std::size_t scores = nodes.add({"attention_scores"}, {projected, states});
      const std::size_t last = nodes.add(augru, {states, scores});
      nodes.dense(nodes.add({"concat"}, {last, query, scores}), 1);
      check_everywhere(nodes, units == 7 ? 67 : 7);
    }
  }
}

TEST_CASE("a sequence that several nodes read, and inputs whose gradient nobody needs") {
  Nodes nodes;
  const auto [query, keys] = attended_of(nodes, 8, false);
  const std::size_t states = nodes.add({"gru", {{"units", 8}}}, {keys});
  const std::size_t again = nodes.add({"gru", {{"units", 3}}}, {states});
  const std::size_t a = nodes.add(unit_of({4}, true), {query, states});
  const std::size_t b = nodes.add({"attention_scores"}, {nodes.input(8), states});
  const std::size_t both = nodes.add({"sum"}, {a, b});
  const std::size_t x = nodes.add({"attention_pool"}, {a, states});
  const std::size_t y = nodes.add({"attention_pool"}, {b, states});
  const std::size_t last = nodes.add({"augru", {{"units", 8}}}, {states, b});
  nodes.dense(nodes.add({"concat"}, {both, x, y, last, states, again}), 1);
  check_everywhere(nodes, 70);
}

TEST_CASE("examples without a single step have gradients of nothing but what they read") {
  for (Isa isa : leashed::available_isas()) {
    Nodes nodes;
    const auto [query, keys] = attended_of(nodes, 8, false);
    const std::size_t states = nodes.add({"gru", {{"units", 8}}}, {keys});
    const std::size_t a = nodes.add(unit_of({4}, true), {query, states});
    const std::size_t last = nodes.add({"augru", {{"units", 8}}}, {states, a});
    nodes.dense(nodes.add({"concat"}, {last, query}), 1);
    Problem p(nodes, 9, Ids::bags, isa);
    for (std::uint32_t& offset : p.columns[0].offsets) offset = 0;
    check_gradient(p);
  }
}

TEST_CASE("long sequences, and attention that is all at one step") {
  for (Isa isa : leashed::available_isas()) {
    Nodes nodes;
    const std::size_t table = nodes.table(3);
    const std::size_t keys = nodes.embedding(table, "sequence", 2000);
    const std::size_t query = nodes.embedding(table);
    const std::size_t states = nodes.add({"gru", {{"units", 3}}}, {keys});
    const std::size_t scores = nodes.add({"attention_scores"}, {query, states});
    nodes.dense(nodes.add({"augru", {{"units", 3}}}, {states, scores}), 1);
    Problem p(nodes, 7, Ids::bags, isa);
    for (float& v : p.rows[0]) v *= 200;  // scores that differ by thousands
    check_gradient(p);
  }
}

TEST_CASE("sequences that do not fit are refused by the node's index") {
  const auto fails = [](const Nodes& nodes, const char* why) {
    CHECK_THROWS_WITH_AS(Graph(nodes.list, nodes.tables()), doctest::Contains(why), leashed::Error);
  };
  const auto with = [](Choice kind, std::size_t query_dim) {
    Nodes nodes;
    const std::size_t keys = nodes.embedding(nodes.table(4), "sequence");
    const std::size_t query = nodes.embedding(nodes.table(query_dim));
    nodes.add(std::move(kind), {query, keys});
    return nodes;
  };
  fails(with(unit_of({4}, false), 3), "node 2 (attention_unit): the query must be as wide");
  fails(with(unit_of({}, false), 4), "hidden must have at least one width");
  fails(with(unit_of({0.5}, false), 4), "hidden must be a whole number");
  fails(with({"attention_scores"}, 5), "the query must be as wide as a key, 4, but is 5");
  fails(with({"attention_pool"}, 4), "its input 0 must be a sequence");
  fails(with({"zip"}, 4), "its input 0 must be a sequence");
  Nodes lengths;
  const std::size_t shorter = lengths.embedding(lengths.table(4), "sequence", 2);
  lengths.add({"zip"}, {shorter, lengths.embedding(lengths.table(4), "sequence", 3)});
  fails(lengths, "its inputs must have one length, but they have 2 and 3");
  Nodes others;
  const std::size_t one = others.embedding(others.table(1), "sequence");
  others.add({"attention_pool"}, {one, others.embedding(others.table(4), "sequence")});
  fails(others, "its input 0 must be scores of the sequence it reads");
}

TEST_CASE("the last node may be side by side or a sum") {
  Nodes nodes;
  const std::size_t x = nodes.input(4);
  nodes.add({"concat"}, {nodes.dense(x, 1)});
  check_everywhere(nodes);
}

Nodes small_dlrm() {
  Nodes nodes;
  const auto vectors = vectors_of(nodes, 5, 8);
  const std::size_t dot = nodes.add({"dot"}, vectors);
  nodes.dense(nodes.relu(nodes.dense(nodes.add({"concat"}, {vectors[0], dot}), 7)), 1);
  return nodes;
}

// With values dropped in front of the last layer, and among what the batch chose.
Nodes dropping() {
  Nodes nodes;
  const std::size_t wide = nodes.relu(nodes.dense(nodes.input(3), 21));
  nodes.dense(nodes.add({"dropout", {{"rate", 0.4}}}, {wide}), 1);
  return nodes;
}
Nodes choosing() {
  Nodes nodes;
  const double table = static_cast<double>(nodes.table(5));
  const std::size_t user = nodes.dense(nodes.input(3), 5);
  Choice kind{"in_batch", {{"table", table}, {"below", kRows}}};
  kind.parts.emplace("frequencies", Choice{"log_uniform"});
  nodes.add(std::move(kind), {user});
  return nodes;
}

TEST_CASE("what is drawn or chosen has the same bits after other batches, and allocates nothing") {
  for (Isa isa : leashed::available_isas()) {
    for (const auto& [nodes, loss] :
         {std::pair{dropping(), "log_loss"}, std::pair{choosing(), "in_batch"}}) {
      CAPTURE(loss);
      Problem large(nodes, 300, Ids::one, isa, loss), small(nodes, 33, Ids::one, isa, loss);
      for (Problem* p : {&large, &small}) p->view.drawing = {5, 1000};
      const std::vector<float> alone = small.gradient(), first = large.gradient();
      const auto rows = small.gradients;
      std::swap(small.workspace, large.workspace);
      const std::size_t evaluated = allocations.load();
      small.graph.evaluate(small.theta.data(), small.view, *small.workspace);
      CHECK(allocations.load() == evaluated);
      CHECK(small.gradient() == alone);
      CHECK(small.gradients == rows);
      CHECK(large.gradient() == first);

      std::vector<float> g(small.theta.size());
      const std::size_t before = allocations.load();
      small.graph.gradient(small.theta.data(), small.view, g.data(), *small.workspace, kGoOn);
      large.graph.gradient(large.theta.data(), large.view, g.data(), *large.workspace, kGoOn);
      CHECK(allocations.load() == before);
    }
  }
}

TEST_CASE("nothing is dropped where nothing is trained, and a mask is of an example's place") {
  for (Isa isa : leashed::available_isas()) {
    Problem p(dropping(), 70, Ids::one, isa);
    std::vector<float> values(70), others(70), logits(70);
    p.graph.predict(p.theta.data(), p.view, values.data(), *p.workspace);
    p.view.drawing = {5, 1000};
    const std::vector<float> g = p.gradient();
    p.graph.predict(p.theta.data(), p.view, others.data(), *p.workspace);
    CHECK(values == others);
    p.view.logits = logits.data();
    CHECK(p.gradient() == g);
    // The same examples as two batches.
    Problem rest(dropping(), 70, Ids::one, isa);
    std::vector<float> alone(70);
    rest.view.drawing = {5, 1010};
    rest.view.rows += 10;
    rest.view.targets = p.view.targets.from(10);
    rest.view.size = 60;
    rest.view.logits = alone.data();
    rest.gradient();
    for (std::size_t i = 0; i < 60; ++i) CHECK(alone[i] == logits[10 + i]);
    p.view.drawing = {6, 1000};
    CHECK(p.gradient() != g);
  }
}

TEST_CASE("gradients have the same bits whatever was computed before, and allocate nothing") {
  for (Isa isa : leashed::available_isas()) {
    for (Ids ids : {Ids::one, Ids::weighted}) {
      Problem p(small_dlrm(), 100, ids, isa), other(small_dlrm(), 66, Ids::bags, isa);
      const std::vector<float> first = p.gradient();
      const auto rows = p.gradients;
      std::swap(p.workspace, other.workspace);
      other.gradient();
      std::swap(p.workspace, other.workspace);
      other.workspace.swap(p.workspace);
      CHECK(p.gradient() == first);
      CHECK(p.gradients == rows);

      std::vector<float> g(p.theta.size());
      const std::size_t before = allocations.load();
      p.graph.gradient(p.theta.data(), p.view, g.data(), *p.workspace, kGoOn);
      p.graph.evaluate(p.theta.data(), p.view, *p.workspace);
      CHECK(allocations.load() == before);
    }
  }
}

TEST_CASE("rows whose gradient is not wanted are read alone") {
  for (Ids ids : {Ids::one, Ids::bags}) {
    Problem p(small_dlrm(), 70, ids, leashed::default_isa());
    const std::vector<float> g = p.gradient();
    for (auto& table : p.tables) table.gradient = nullptr;
    CHECK(p.gradient() == g);
    const leashed::Evaluation e = p.graph.evaluate(p.theta.data(), p.view, *p.workspace);
    CHECK(e.rows == 70);
  }
}

TEST_CASE("NaN in a row or a parameter gives a loss that is NaN") {
  for (Isa isa : leashed::available_isas()) {
    for (Ids ids : {Ids::one, Ids::weighted}) {
      Problem p(small_dlrm(), 30, ids, isa);
      for (std::size_t t = 0; t < p.rows.size(); ++t) {
        const auto old = p.rows[t];
        std::fill(p.rows[t].begin(), p.rows[t].end(), kNan);
        float loss = 0;
        p.gradient(&loss);
        CHECK(std::isnan(loss));
        p.rows[t] = old;
      }
    }
  }
  for (const char* pooling : {"max", "mean", "sequence"}) {
    Nodes nodes;
    nodes.dense(nodes.embedding(nodes.table(5), pooling), 1);
    Problem p(nodes, 30, Ids::bags, leashed::default_isa());
    for (std::size_t i = 0; i < 5; ++i) p.rows[0][2 * 5 + i] = kNan;
    float loss = 0;
    p.gradient(&loss);
    CHECK(std::isnan(loss));
  }
}

TEST_CASE("a cancelled gradient of a graph returns at once") {
  Problem p(small_dlrm(), 20, Ids::one, leashed::default_isa());
  const std::atomic<bool> cancel{true};
  std::vector<float> g(p.theta.size(), 7);
  p.graph.gradient(p.theta.data(), p.view, g.data(), *p.workspace, cancel);
  CHECK(g.back() == 7);
}

}  // namespace
