#include "leashed/trace/replayed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"

namespace leashed {
namespace {

constexpr double kSlice = 0.02;  // seconds between two looks at signals

// The largest |a − b|; NaN where one of them is NaN and the bits differ.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof a[i]) == 0) continue;
    const double apart = std::abs(double{a[i]} - double{b[i]});
    if (std::isnan(apart)) return apart;
    most = std::max(most, apart);
  }
  return most;
}

}  // namespace

void require_recorded(const ReplayOptions& options, std::uint64_t last) {
  if (options.until == ReplayOptions::kAll || options.until <= last) return;
  throw Error("until is " + std::to_string(options.until) + ", but it goes to update " +
              std::to_string(last) + "; give at most that");
}

void compare_with_end(Replayed& result, const Trace& trace, const ReplayOptions& options) {
  Trace::End end = trace.end();
  if (!end.theta.empty() && !result.interrupted && result.t < std::min(options.until, end.t)) {
    throw Error("its records lack update " + std::to_string(result.t + 1) +
                "; use an unaltered copy");
  }
  result.ended = end.theta.size() == result.parameters.size() && result.t == end.t;
  if (result.ended) result.difference = difference(result.parameters, end.theta);
  result.end_rows = std::move(end.rows);
}

void compare_rows(Replayed& result, const std::vector<std::uint64_t>& rows) {
  result.ended = result.end_rows.size() == rows.size();  // or killed while they were written
  if (result.end_rows != rows) result.difference = std::numeric_limits<double>::infinity();
}

bool Interruption::operator()() {
  if (!asked_ || now() < next_look_) return false;
  next_look_ = now() + kSlice;
  return asked_();
}

}  // namespace leashed
