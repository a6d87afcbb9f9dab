// A policy server that has the rows of two tables, for trainers over sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cluster/wires.h"
#include "leashed/cluster/mode_trainer.h"
#include "leashed/cluster/policy_server.h"
#include "leashed/modes/mode_trace.h"
#include "leashed/update/registry.h"
#include "modes/row_job.h"

namespace leashed {

inline constexpr ModeTrainer::Settings kAlike{1, 2, 100, 1, kLong};

inline bool pushes_gradients(const Choice& mode) {
  for (const char* name : {"all_reduce", "swarm", "go_sgd", "ad_psgd", "d_psgd", "prague",
                           "ensemble", "easgd", "local_sgd"}) {
    if (mode.name == name) return false;
  }
  return true;
}

// A server of two tables, and what trains there is made from.
struct Served {
  // recorder: writes down what the server hears; null: nobody does.
  Served(Choice mode, std::size_t workers, row_job::Kind kind,
         std::uint64_t examples = 3 * row_job::kExamples, ModeRecorder* recorder = nullptr)
      : data(kind == row_job::Kind::evicts || kind == row_job::Kind::full ? 100'000 : 30),
        tables(row_job::tables_of(kind, row_job::kAdam)),
        rule(make_rule(row_job::kSgd)) {
    mode.settings.insert({{"workers", static_cast<double>(workers)},
                          {"batch", static_cast<double>(row_job::kBatch)},
                          {"examples", static_cast<double>(examples)}});
    choice = mode;
    machine = std::make_unique<modes::ServerPolicy>(modes::make_server_policy(mode));
    holder = std::make_unique<RowHolder>(tables, std::vector<std::size_t>());
    PolicyService::Heard heard;
    PolicyService::Noted noted;
    if (recorder) {
      heard = [recorder](const modes::Event& event, Time at) { recorder->heard(event, at); };
      noted = [recorder](modes::Node node, LogLine::Note note) { recorder->noted(node, note); };
    }
    server = std::make_unique<PolicyServer>(*machine, context(workers),
                                            PolicyService::Run{kAlike.run, kAlike.terms, 3}, heard,
                                            noted, nullptr, holder.get());
    for (const auto& table : tables) {
      shapes.push_back(
          {table->settings().name, row_job::kDim, kind == row_job::Kind::fixed ? 30u : 0u});
    }
  }
  DisciplineContext context(std::size_t workers) const {
    return {initial.data(), row_job::kFeatures, workers, 1, *rule};
  }
  ModeTrainOptions options(std::size_t workers) const {
    ModeTrainOptions all{workers, row_job::kBatch, row_job::kSeed, {}};
    all.evaluate_every = evaluate_every;
    return all;
  }
  ModeTrainResult train(ModeTrainer& trainer, std::size_t workers) {
    return trainer.train(source, data.view(), nullptr, machine->rule(), context(workers),
                         options(workers), {});
  }
  // The same on threads.
  std::pair<ModeTrainResult, std::vector<float>> on_threads(std::size_t workers,
                                                            row_job::Kind kind) const {
    const row_job::Tables others = row_job::tables_of(kind, row_job::kAdam);
    ModeTrainOptions all = options(workers);
    all.tables = others;
    ModeTrainResult result =
        train_mode(source, data.view(), nullptr, *machine, context(workers), all, {});
    return {std::move(result), row_job::rows_of(others, data)};
  }

  double evaluate_every = 1e9;  // before, and behind the end
  Choice choice;                // of the mode
  row_job::Source source;
  const row_job::Data data;
  const row_job::Tables tables;
  const std::unique_ptr<const Rule> rule;
  const std::vector<float> initial = std::vector<float>(row_job::kFeatures, 0.25f);
  std::unique_ptr<modes::ServerPolicy> machine;
  std::unique_ptr<RowHolder> holder;
  std::unique_ptr<PolicyServer> server;
  std::vector<ServedTable> shapes;
};

}  // namespace leashed
