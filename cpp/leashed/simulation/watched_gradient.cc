#include "leashed/simulation/watched_gradient.h"

#include <chrono>
#include <future>
#include <system_error>

#include "leashed/base/clock.h"
#include "leashed/base/team.h"

namespace leashed {
namespace {

// Seconds between two looks; to start a thread takes a hundredth of it.
constexpr double kPatience = 0.01;

}  // namespace

float WatchedGradient::operator()(const float* theta, const BatchView& batch, float* gradient) {
  const double begin = now();
  const float loss =
      lasts_ ? compute_apart(theta, batch, gradient) : compute(theta, batch, gradient);
  lasts_ = now() - begin > kPatience;
  return loss;
}

float WatchedGradient::compute(const float* theta, const BatchView& batch, float* gradient) {
  return source_.gradient(theta, batch, gradient, *workspace_, watch_.stop.flag());
}

float WatchedGradient::compute_apart(const float* theta, const BatchView& batch, float* gradient) {
  std::packaged_task<float()> task([&] {
    const auto attached = source_.attach();
    return compute(theta, batch, gradient);
  });
  std::future<float> found = task.get_future();
  std::jthread helper;  // joined before what it refers to goes
  try {
    helper = start_thread([&task] { task(); });
  } catch (const std::system_error&) {  // the system starts no more
    task();
  }
  try {
    while (found.wait_for(std::chrono::duration<double>(kPatience)) != std::future_status::ready) {
      watch_.looked();
    }
  } catch (...) {
    watch_.stop.stop(StopReason::interrupted);
    throw;
  }
  return found.get();
}

}  // namespace leashed
