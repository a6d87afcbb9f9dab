// Every mode goes on, on several threads, from whatever checkpoint it took: what was pushed before
// it, and what is pushed after it and is not late, is every example, once. And what a checkpoint
// says that it cannot is refused, or harms nobody.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "all_modes.h"
#include "leashed/data/stream_batches.h"
#include "leashed/modes/policy_threads.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/registry.h"
#include "numbers.h"

using namespace leashed;
using namespace leashed::modes;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Place {
  bool streams = false;
  double term_ns = 0;
  std::size_t rows = kNumbers;
};

struct Taken {
  Checkpoint state;
  std::uint64_t finished;  // examples of which nobody has the lease any more
};

ServerPolicy machine_of(Choice mode, const Place& place, std::size_t workers) {
  mode.settings.insert({{"workers", static_cast<double>(workers)},
                        {"batch", 4},
                        {"examples", place.streams ? 0 : static_cast<double>(place.rows)},
                        {"term_ns", place.term_ns}});
  return make_server_policy(mode);
}

// Is told what the server is told, and so knows what it has leased.
class Twin final : public ModeListener {
 public:
  explicit Twin(const ServerPolicy& machine) : machine_(machine) {}

  void heard(const Event& event, Time at) override {
    const std::lock_guard lock(mutex_);
    out_.clear();
    machine_.on(event, at, out_);
  }
  void stepped(Node) override {}
  std::uint64_t finished() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t finished = machine_.examples_leased();
    for (const Lease& lease : machine_.unfinished()) finished -= lease.count;
    return finished;
  }

 private:
  mutable std::mutex mutex_;
  ServerPolicy machine_;
  Out out_;
};

struct Setting {
  Choice mode;
  Place place = {};
  std::size_t workers = 3;
  double seconds = kInfinity;  // between checkpoints
  std::uint64_t updates = 0;   // likewise
  StopRules until = {};
};

ModeTrainResult run(const CountingSource& source, const Setting& setting,
                    const Checkpoint* from = nullptr, std::vector<Taken>* taken = nullptr) {
  const auto& [mode, place, workers, seconds, updates, until] = setting;
  RowStream stream(std::make_unique<Numbers>(place.rows), layout_of_numbers(),
                   {.threads = 2, .places = 2});
  const StreamedData streamed{&stream};
  std::vector<float> x, y;
  for (std::size_t i = 0; i < place.rows && !place.streams; ++i) {
    const auto number = static_cast<float>(i);
    x.insert(x.end(), {number, 3 * number});
    y.push_back(number);
  }
  const auto rule = make_rule({"sgd", {{"lr", 0.02}}});
  const std::vector<float> initial(2);
  DisciplineContext context{initial.data(), 2, workers, 1, *rule};
  if (from) context.t = from->position.updates;
  const ServerPolicy machine = machine_of(mode, place, workers);
  Twin twin(machine);
  ModeTrainOptions options{workers, 4, 7, until};
  if (!from) options.commands = {{1e-4, 1}, {4e-4, 0}, {6e-4, 1}};
  if (mode.name != "switching") options.commands.clear();
  if (place.streams) options.stream = &streamed;
  options.terms = place.term_ns > 0;
  options.checkpoint_every = seconds;
  options.pause_every = updates;
  options.from = from;
  TrainCallbacks callbacks;
  if (taken) {
    options.listener = &twin;
    callbacks.checkpoint = [&](Checkpoint state) {
      taken->push_back({std::move(state), twin.finished()});
    };
  }
  const DatasetView data = place.streams ? DatasetView{nullptr, {}, 0, 2}
                                         : DatasetView{x.data(), y.data(), place.rows, 2};
  return train_mode(source, data, nullptr, machine, context, options, callbacks);
}

}  // namespace

TEST_CASE("what was pushed before a checkpoint and after it is every example, once") {
  for (const Choice& mode : all_modes()) {
    for (const Place& place : {Place{}, Place{true}, Place{true, 2e4}}) {
      for (const auto& [seconds, updates] : {std::pair{kInfinity, 5}, std::pair{5e-4, 0}}) {
        CAPTURE(mode.name);
        CAPTURE(place.streams);
        CAPTURE(place.term_ns);
        CAPTURE(updates);
        std::vector<Taken> taken;
        Setting setting{mode, place, 3, seconds, static_cast<std::uint64_t>(updates)};
        setting.until.seconds = 60;
        const ModeTrainResult whole = run(CountingSource(), setting, nullptr, &taken);
        CHECK(whole.training.reason == StopReason::epochs);
        CHECK(pushed(whole) - whole.counts.late == kNumbers);
        REQUIRE(!taken.empty());
        CHECK(taken.back().finished == kNumbers);
        setting.seconds = kInfinity;
        setting.updates = 7;
        const std::size_t apart = std::max<std::size_t>(taken.size() / 5, 1);
        for (std::size_t i = 0; i < taken.size(); i += apart) {
          CAPTURE(i);
          const CountingSource source;
          const ModeTrainResult rest = run(source, setting, &taken[i].state);
          CHECK(rest.training.reason == StopReason::epochs);
          CHECK(taken[i].finished + pushed(rest) - rest.counts.late == kNumbers);
          CHECK(source.wrong == 0);
          if (place.term_ns > 0) continue;
          CHECK(std::ranges::count(source.seen, 0u) == static_cast<long>(taken[i].finished));
          CHECK(std::ranges::max(source.seen) <= 1);
        }
      }
    }
  }
}

TEST_CASE("a run that has come to the end of its examples goes on where there are more") {
  for (const Choice& mode : all_modes()) {
    for (const bool streams : {false, true}) {
      for (const std::size_t rows : {450, 451, 453}) {
        CAPTURE(mode.name);
        CAPTURE(streams);
        CAPTURE(rows);
        std::vector<Taken> taken;
        Setting setting{mode, {streams, 0, rows}};
        run(CountingSource(), setting, nullptr, &taken);
        setting.until.seconds = 60;
        CHECK(pushed(run(CountingSource(), setting, &taken.back().state)) == 0);
        setting.place.rows = kNumbers;
        const ModeTrainResult rest = run(CountingSource(), setting, &taken.back().state);
        CHECK(rest.training.reason == StopReason::epochs);
        CHECK(pushed(rest) == kNumbers - rows);
      }
    }
  }
}

TEST_CASE("a stream that has become shorter than what was handed out of it is refused") {
  std::vector<Taken> taken;
  Setting setting{{"asp"}, {true}};
  setting.until.updates = 90;
  run(CountingSource(), setting, nullptr, &taken);
  setting.place.rows = 100;
  CHECK_THROWS_WITH_AS(run(CountingSource(), setting, &taken.back().state),
                       doctest::Contains("the stream has 100 examples"), Error);
}

TEST_CASE("pauses that come one upon another let workers go on") {
  std::vector<Taken> taken;
  const Setting setting{{"sync"}, {}, 3, 1e-9};
  CHECK(pushed(run(CountingSource(), setting, nullptr, &taken)) == kNumbers);
}

TEST_CASE("whatever a checkpoint says, no thread waits for ever, and nothing else is touched") {
  std::size_t refused = 0, gone_on = 0;
  for (const Choice& mode : all_modes()) {
    for (const Place& place : {Place{false, 0, 100}, Place{true, 0, 100}}) {
      std::vector<Taken> taken;
      Setting setting{mode, place, 2, kInfinity, 3};
      setting.until.updates = 10;
      run(CountingSource(), setting, nullptr, &taken);
      REQUIRE(taken.size() > 1);
      setting = {mode, place, 2};
      setting.until.seconds = 60;
      const Checkpoint& state = taken[taken.size() / 2].state;
      for (std::size_t i = 0; i < state.mode.words.size(); ++i) {
        const std::uint64_t was = state.mode.words[i];
        for (const std::uint64_t word : {was + 1, was - 1, ~was}) {
          CAPTURE(mode.name);
          CAPTURE(place.streams);
          CAPTURE(i);
          CAPTURE(was);
          CAPTURE(word);
          Checkpoint wrong = state;
          wrong.mode.words[i] = word;
          try {
            const ModeTrainResult rest = run(CountingSource(), setting, &wrong);
            CHECK(rest.training.reason == StopReason::epochs);
            ++gone_on;
          } catch (const Error&) {
            ++refused;
          }
        }
      }
    }
  }
  CHECK(refused > 0);
  CHECK(gone_on > 0);
}
