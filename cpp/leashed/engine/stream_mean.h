#pragma once

#include <vector>

namespace leashed {

struct WorkerTelemetry;

// The mean loss of the rows of a stream's latest pass, each as its batch found it; while the pass
// is under way the one before stands for the rows that are to come. NaN: none yet.
double mean_of_stream(const std::vector<const WorkerTelemetry*>& workers);

}  // namespace leashed
