// Pieces of work in turns, because what a virtual CPU gives changes from one moment to the next:
// what is to be compared must see the machine at its good and bad moments alike.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <ctime>
#include <functional>
#include <thread>
#include <vector>

#include "leashed/base/clock.h"

namespace bench {

using Work = std::function<void()>;

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Seconds of processor time that all threads of this process have used.
inline double process_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

struct Turns {
  std::vector<std::vector<double>> seconds;  // of one call, by work and turn
  double cpu_share;                          // of the time, how much this thread ran

  double median_seconds(std::size_t work) const { return median(seconds[work]); }
  // The median over the turns of how many times as long `work` took as `other`.
  double median_ratio(std::size_t work, std::size_t other) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < seconds[work].size(); ++i) {
      ratios.push_back(seconds[work][i] / seconds[other][i]);
    }
    return median(ratios);
  }
};

// One thread: turns of about a millisecond each for `seconds`, on the thread's own clock: the time
// it waited for a CPU says nothing about its kernels.
inline Turns take_turns(const std::vector<Work>& works, double seconds) {
  const auto time = [](const Work& work, std::size_t repeats) {
    const double start = leashed::thread_seconds();
    for (std::size_t i = 0; i < repeats; ++i) work();
    return (leashed::thread_seconds() - start) / static_cast<double>(repeats);
  };
  std::vector<std::size_t> repeats;
  for (const Work& work : works) {
    work();
    const double once = std::max(time(work, 1), 1e-8);
    // A first call of a nanosecond or two is mostly the clock's: measured again, many at once.
    const double again = once < 1e-5 ? std::max(time(work, 100), 1e-9) : once;
    repeats.push_back(std::max<std::size_t>(1, static_cast<std::size_t>(1e-3 / again)));
  }
  Turns turns{std::vector<std::vector<double>>(works.size()), 0};
  const double start = leashed::now(), used = leashed::thread_seconds();
  do {
    for (std::size_t i = 0; i < works.size(); ++i) {
      turns.seconds[i].push_back(time(works[i], repeats[i]));
    }
  } while (leashed::now() - start < seconds);
  turns.cpu_share = (leashed::thread_seconds() - used) / (leashed::now() - start);
  return turns;
}

struct TeamRate {
  double rate;       // of all threads together, per second of wall time
  double cpu_share;  // of the processors that they asked for
};

// Several threads at once for `seconds` of wall time: each calls work(rank), which returns how much
// it did, again and again.
inline TeamRate team_rate(std::size_t threads, double seconds,
                          const std::function<double(std::size_t)>& work) {
  std::vector<double> rates(threads), shares(threads);
  std::barrier together(static_cast<std::ptrdiff_t>(threads));
  {
    std::vector<std::jthread> team;
    for (std::size_t rank = 0; rank < threads; ++rank) {
      team.emplace_back([&, rank] {
        work(rank);
        together.arrive_and_wait();
        const double start = leashed::now(), used = leashed::thread_seconds();
        double done = 0, elapsed = 0;
        while (elapsed < seconds) {
          done += work(rank);
          elapsed = leashed::now() - start;
        }
        rates[rank] = done / elapsed;
        shares[rank] = (leashed::thread_seconds() - used) / elapsed;
      });
    }
  }
  TeamRate sum{};
  for (std::size_t rank = 0; rank < threads; ++rank) {
    sum.rate += rates[rank];
    sum.cpu_share += shares[rank] / static_cast<double>(threads);
  }
  return sum;
}

}  // namespace bench
