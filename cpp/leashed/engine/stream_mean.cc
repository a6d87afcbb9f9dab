#include "leashed/engine/stream_mean.h"

#include <cmath>
#include <map>

#include "leashed/engine/telemetry.h"

namespace leashed {

double mean_of_stream(const std::vector<const WorkerTelemetry*>& workers) {
  std::map<std::uint64_t, PassLoss> passes;
  for (const WorkerTelemetry* worker : workers) {
    worker->stream_loss.each([&](std::uint64_t pass, double mean, std::uint64_t rows) {
      passes[pass].add(mean * static_cast<double>(rows), rows);
    });
  }
  const auto latest = passes.rbegin();
  if (latest == passes.rend()) return std::nan("");
  const auto& [pass, now] = *latest;
  const auto before = passes.find(pass - 1);
  if (before == passes.end() || before->second.rows <= now.rows) return now.mean();
  const double share = static_cast<double>(now.rows) / static_cast<double>(before->second.rows);
  return std::lerp(before->second.mean(), now.mean(), share);
}

}  // namespace leashed
