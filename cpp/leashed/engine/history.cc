#include "leashed/engine/history.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "leashed/engine/memory.h"
#include "leashed/engine/stream_mean.h"

namespace leashed {
namespace {

// When there are too many copies, every second is dropped.
constexpr std::size_t kCopies = 64;
constexpr std::size_t kCopyBytes = std::size_t{128} << 20;  // of all losses together

constexpr double kFine = 0.02;
constexpr std::size_t kSampled = 16;  // of so many rows, one tells where to look
constexpr std::size_t kGuesses = 4;
// What a promise may be corrected by: one evaluation may have met a spike.
constexpr double kMostAbove = 2;

double share(const Evaluation& e) {
  return static_cast<double>(e.correct) / static_cast<double>(e.rows);
}

}  // namespace

History::History(const Run& run, const DatasetView* validation, Evaluator& evaluator,
                 const Stopwatch& clock, double initial_loss)
    : run_(run),
      workers_(run.counting.all()),
      validation_(validation),
      evaluator_(evaluator),
      every_(Evaluator::every(run.data, run.until.rows)),
      clock_(clock),
      given_initial_loss_(initial_loss) {}

double History::initial_loss() const {
  return evaluations_.empty() || !std::isnan(given_initial_loss_) ? given_initial_loss_
                                                                  : evaluations_.front().loss;
}

std::uint64_t History::without_copies(std::uint64_t bytes) const {
  std::size_t copies = copies_.size() + spare_.size() + (evaluating_.empty() ? 0 : 1);
  for (const Crossing& crossing : crossings_) copies += crossing.copies.size();
  return bytes - std::min(bytes, copies * run_.source.dimension() * sizeof(float));
}

Evaluated History::look_at(std::uint64_t t) const {
  Evaluated e{};
  e.seconds = clock_.seconds();
  e.updates = t;
  e.live_vectors = run_.observed.live_vectors() + workers_.size();
  e.memory_bytes = without_copies(resident_bytes());
  for (const WorkerTelemetry* worker : workers_) {
    e.gradients += worker->gradients.get();
    worker->staleness.merge_bins_into(e.staleness);
  }
  e.observed = run_.observers.found();
  return e;
}

std::vector<float> History::statistics() const {
  auto running = run_.source.running();
  return running ? std::move(running->values) : std::vector<float>();
}

bool History::measure(Evaluated& e, const float* theta, std::span<const float> statistics,
                      std::size_t threads) {
  const double begin = thread_seconds();
  if (run_.streams()) return measure_streaming(e, theta, statistics, threads);
  const auto train = evaluator_(theta, run_.data, threads, every_, nullptr, statistics);
  std::optional<Evaluation> validate;
  if (train && validation_) {
    validate = evaluator_(theta, *validation_, threads, 1, nullptr, statistics);
  }
  if (!train || (validation_ && !validate)) return false;
  if (threads == 1 || evaluation_seconds_ == 0) {
    evaluation_seconds_ = (thread_seconds() - begin) * static_cast<double>(threads);
  }
  e.loss = train->loss_sum / static_cast<double>(train->rows);
  e.rows = train->rows;
  const bool classes = run_.data.targets.labels && run_.source.classifies();
  e.accuracy = classes ? share(*train) : std::nan("");
  e.validation_accuracy = validate && classes ? share(*validate) : std::nan("");
  e.heads = train->heads;
  if (validate) {
    e.validation_loss = validate->loss_sum / static_cast<double>(validate->rows);
    e.validation_heads = validate->heads;
  }
  return true;
}

// Of what is gone nothing can be evaluated: the loss is the one that the workers have found.
bool History::measure_streaming(Evaluated& e, const float* theta, std::span<const float> statistics,
                                std::size_t threads) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const double begin = thread_seconds();
  std::optional<Evaluation> validate;
  if (validation_ &&
      !(validate = evaluator_(theta, *validation_, threads, 1, nullptr, statistics))) {
    return false;
  }
  if (threads == 1 || evaluation_seconds_ == 0) {
    evaluation_seconds_ = (thread_seconds() - begin) * static_cast<double>(threads);
  }
  e.loss = mean_of_stream(workers_);
  e.accuracy = kNone;
  const bool classes = validate && validation_->targets.labels && run_.source.classifies();
  e.validation_accuracy = classes ? share(*validate) : kNone;
  if (validate) {
    e.validation_loss = validate->loss_sum / static_cast<double>(validate->rows);
    e.validation_heads = validate->heads;
  }
  return true;
}

bool History::evaluate(std::size_t threads, bool aside) {
  Evaluated e;
  double heard_then = 0;
  bool complete = false;
  aside |= most_copies() > 0;  // which may be taken while this evaluation lasts
  run_.observed.with_snapshot([&](const float* theta, std::uint64_t t) {
    e = look_at(t);
    heard_then = heard();
    evaluating_by_ = statistics();
    if (run_.metrics) run_.metrics->ask();
    if (aside) {
      evaluating_.assign(theta, theta + run_.source.dimension());
    } else {
      complete = measure(e, theta, evaluating_by_, threads);
    }
  });
  if (aside) complete = measure(e, evaluating_.data(), evaluating_by_, threads);
  if (!complete) return false;
  if (run_.metrics) {
    const double begin = thread_seconds();
    e.scored = run_.metrics->take(e.seconds, e.updates);
    scoring_seconds_ = thread_seconds() - begin;
  }
  above_heard_ =
      e.loss > 0 && heard_then > 0 ? std::clamp(e.loss / heard_then, 1.0, kMostAbove) : 1;
  evaluations_.push_back(std::move(e));
  if (evaluations_.size() == 1) losses_ = run_.until.losses(initial_loss());
  settle();
  return true;
}

void History::settle() {
  const Evaluated& latest = evaluations_.back();
  Crossing crossing;
  while (!losses_.empty() && latest.loss <= losses_.front()) {
    crossing.losses.push_back(losses_.front());
    losses_.erase(losses_.begin());
  }
  const auto later = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return copy.seen.seconds > latest.seconds;
  });
  if (crossing.losses.empty()) {
    for (auto copy = copies_.begin(); copy != later; ++copy)
      spare_.push_back(std::move(copy->theta));
  } else if (later != copies_.begin()) {
    crossing.above = evaluations_.size() > 1 ? evaluations_[evaluations_.size() - 2] : latest;
    std::move(copies_.begin(), later, std::back_inserter(crossing.copies));
    crossing.copies.push_back(
        {latest, std::move(evaluating_), std::move(evaluating_by_), std::nan("")});
    crossings_.push_back(std::move(crossing));
  }
  copies_.erase(copies_.begin(), later);
}

double History::heard() const {
  double sum = 0, heard = 0;
  for (const WorkerTelemetry* worker : workers_) {
    const double loss = worker->loss.get();
    if (std::isnan(loss)) continue;
    sum += loss;
    heard += 1;
  }
  return sum / heard;
}

bool History::promising() const {
  return !losses_.empty() && heard() * above_heard_ <= losses_.back();
}

std::size_t History::most_copies() const {
  // (Of tables' rows there are no copies.)
  if (losses_.empty() || run_.rows) return 0;
  const std::size_t each = run_.source.dimension() * sizeof(float);
  const std::size_t most = kCopyBytes / ((losses_.size() + crossings_.size()) * each);
  return most < 2 ? 0 : std::min(kCopies, most);
}

bool History::remember() {
  const std::size_t dimension = run_.source.dimension(), most = most_copies();
  if (most == 0) return false;
  const double begin = thread_seconds();
  run_.observed.with_snapshot([&](const float* theta, std::uint64_t t) {
    if (!copies_.empty() && copies_.back().seen.updates == t) return;
    std::vector<float> copy;
    if (!spare_.empty()) {
      copy = std::move(spare_.back());
      spare_.pop_back();
    }
    copy.assign(theta, theta + dimension);
    copies_.push_back({look_at(t), std::move(copy), statistics(), std::nan("")});
    copies_.back().seen.loss = std::nan("");
  });
  copy_seconds_ = thread_seconds() - begin;
  if (copies_.size() < most) return false;
  const std::size_t kept = copies_.size() / 2;
  for (std::size_t i = 0; i < kept; ++i) std::swap(copies_[i], copies_[2 * i + 1]);
  for (std::size_t i = kept; i < copies_.size(); ++i) spare_.push_back(std::move(copies_[i].theta));
  copies_.resize(kept);
  return true;
}

void History::refine(std::size_t threads) {
  for (Crossing& crossing : crossings_) {
    std::size_t begin = 0;
    for (const double loss : crossing.losses) {
      if (!search(crossing, loss, begin, threads)) break;
    }
    for (auto copy = crossing.copies.begin(); copy != crossing.copies.end() - 1; ++copy) {
      if (!std::isnan(copy->seen.loss)) evaluations_.push_back(std::move(copy->seen));
    }
  }
  std::sort(evaluations_.begin(), evaluations_.end(),
            [](const Evaluated& a, const Evaluated& b) { return a.seconds < b.seconds; });
}

double History::sampled(Copy& copy, std::size_t threads) {
  if (std::isnan(copy.sampled)) {
    const auto found = evaluator_(copy.theta.data(), run_.data, threads, std::max(kSampled, every_),
                                  nullptr, copy.statistics);
    if (found) copy.sampled = found->loss_sum / static_cast<double>(found->rows);
  }
  return copy.sampled;
}

std::size_t History::guess(std::vector<Copy>& copies, std::size_t begin, std::size_t end,
                           double loss, double factor, std::size_t threads) {
  while (begin + 1 < end) {
    const std::size_t middle = (begin + end - 1) / 2;
    if (sampled(copies[middle], threads) * factor <= loss) {
      end = middle + 1;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

// Looks where a part of the rows says, corrected by what all of them said of the last copy looked
// at; after kGuesses looks, in the middle. What is finer than kFine of the time is noise of the
// losses.
bool History::search(Crossing& crossing, double loss, std::size_t& begin, std::size_t threads) {
  std::vector<Copy>& copies = crossing.copies;
  std::size_t end = copies.size() - 1, looked_at = end;
  for (std::size_t looks = 0; begin < end; ++looks) {
    std::size_t at = (begin + end) / 2;
    if (!std::isnan(copies[begin].seen.loss)) {
      at = begin;
    } else if (looks < kGuesses) {
      const double factor = copies[looked_at].seen.loss / sampled(copies[looked_at], threads);
      if (std::isfinite(factor)) at = guess(copies, begin, end, loss, factor, threads);
    }
    Evaluated& seen = copies[at].seen;
    if (std::isnan(seen.loss) &&
        !measure(seen, copies[at].theta.data(), copies[at].statistics, threads))
      return false;
    const bool reached = seen.loss <= loss;
    (reached ? end : begin) = reached ? at : at + 1;
    looked_at = at;
    const Evaluated& above = begin > 0 ? copies[begin - 1].seen : crossing.above;
    if (copies[end].seen.seconds - above.seconds <= kFine * copies[end].seen.seconds) break;
  }
  begin = end;
  return true;
}

}  // namespace leashed
