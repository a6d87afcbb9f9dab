#include "leashed/backend/engine.h"

#include <cmath>
#include <utility>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/discipline/discipline.h"
#include "leashed/discipline/registry.h"
#include "leashed/discipline/updater.h"
#include "leashed/update/kernels.h"
#include "leashed/update/registry.h"

namespace leashed {
namespace {

DisciplineContext context_of(const float* theta, std::size_t dimension, const Engine::Parts& parts,
                             const Rule& rule, const StalenessPolicy& staleness) {
  return {theta,
          dimension,
          parts.workers,
          parts.readers + 1,  // with_state
          rule,
          staleness,
          parts.variable_ends,
          parts.state,
          parts.t,
          {},
          {},
          parts.synchronisation ? parts.synchronisation->threads() : 0};
}

Open& open_of(Discipline& discipline) {
  if (Open* open = discipline.open()) return *open;
  throw Error(std::string(discipline.lockstep()
                              ? "Synchronous takes all its threads through every step together, so "
                                "threads cannot come and go"
                              : "threads cannot come and go under this discipline, which has no "
                                "open() (discipline/open.h)") +
              "; choose Leashed(), Hogwild(), Locked() or Sequential()");
}

[[noreturn]] void refuse(const std::string& what, float value) {
  throw Error(what + " is " +
              (std::isnan(value) ? "nan"
               : value < 0       ? "-inf"
                                 : "inf") +
              "; nothing was applied and the parameters are unchanged. Leave this gradient out, or "
              "lower the step size if gradients grow without bound; an Engine with "
              "check_finite=False applies whatever it is given");
}

// One pass over the gradient, which leaves it in the caches for the update.
void require_finite(Gradient gradient) {
  for (const GradientPiece& piece : gradient) {
    const std::size_t n = piece.end - piece.begin;
    const std::size_t i = update_kernels().first_not_finite(piece.values, n);
    if (i < n) refuse("gradient[" + std::to_string(piece.begin + i) + "]", piece.values[i]);
  }
}

void require_finite(const SparseGradient& gradient) {
  const auto& [indices, values, n] = gradient;
  const std::size_t i = update_kernels().first_not_finite(values, n);
  if (i == n) return;
  refuse("values[" + std::to_string(i) + "], of the gradient at index " +
             std::to_string(indices[i]) + ",",
         values[i]);
}

}  // namespace

Engine::Engine(const float* theta, std::size_t dimension, const Parts& parts)
    : dimension_(dimension),
      workers_(parts.workers),
      check_finite_(parts.check_finite),
      rule_(make_rule(parts.rule, parts.workers)),
      staleness_(make_staleness(parts.staleness)),
      layout_(Updater(context_of(theta, dimension, parts, *rule_, *staleness_)).layout()),
      readers_(parts.readers),
      members_(parts.workers, layout_.length(), parts.synchronisation.get()),
      discipline_(make_discipline(parts.discipline,
                                  context_of(theta, dimension, parts, *rule_, *staleness_))),
      open_(open_of(*discipline_)),
      synchronisation_(parts.synchronisation) {}

Engine::~Engine() {
  closed_.store(true, std::memory_order_relaxed);
  end();
}

void Engine::begin(const std::function<bool()>& go_on) {
  if (!synchronisation_) return;
  synchronisation_->begin({*discipline_, workers_, dimension_, stopped_,
                           [this](std::exception_ptr error) { fail(std::move(error)); }, true},
                          go_on);
  begun_ = true;
}

void Engine::end() {
  if (!synchronisation_) return;
  const std::lock_guard lock(end_mutex_);
  if (std::exchange(ended_, true)) return;
  members_.part();
  synchronisation_->end();
}

void Engine::close() {
  closed_.store(true, std::memory_order_relaxed);
  end();
  throw_failure();
}

void Engine::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!std::exchange(failed_, true)) failure_ = std::move(error);
  }
  stopped_.store(true, std::memory_order_relaxed);
  closed_.store(true, std::memory_order_relaxed);
}

// Once: a language's own exception may not be good for more.
void Engine::throw_failure() {
  std::exception_ptr failure;
  {
    const std::lock_guard lock(failure_mutex_);
    failure.swap(failure_);
  }
  if (failure) std::rethrow_exception(failure);
}

void Engine::refuse() {
  throw_failure();
  const std::lock_guard lock(failure_mutex_);
  throw std::runtime_error(failed_ ? "this engine's synchronisation has failed, as another call "
                                     "has raised; close it"
                                   : "this engine is closed; make another");
}

template <class F>
void Engine::synchronising(const F& f) {
  try {
    f(*synchronisation_);
  } catch (...) {
    fail(std::current_exception());
    throw_failure();
  }
}

std::unique_ptr<Held> Engine::hold() {
  check_open();
  auto held = hold_under(readers_, "Engine", [this] { return open_.hold(); });
  Members::Mine& mine = members_.mine();
  mine.t_read = held->view.t;
  mine.has_read = true;
  return held;
}

std::uint64_t Engine::t_of(Members::Mine& mine, const std::uint64_t* t_read) {
  check_open();
  if (!members_.join(mine)) {
    throw std::runtime_error("a thread pushes besides " + std::to_string(workers_) +
                             " others, which are all the workers there may be; make the Engine "
                             "with more workers");
  }
  if (t_read) {
    if (const std::uint64_t latest = t(); *t_read > latest) {
      throw std::invalid_argument("t is " + std::to_string(*t_read) + ", but the version is only " +
                                  std::to_string(latest) +
                                  "; pass the t of the view that was read");
    }
    return *t_read;
  }
  if (!mine.has_read) {
    throw std::runtime_error(
        "this thread has read nothing, so the staleness of its gradient is unknown; call read() "
        "first, or pass the t of the view that the gradient was computed on");
  }
  return mine.t_read;
}

Publication Engine::push(Gradient gradient, const std::uint64_t* t_read) {
  if (check_finite_) require_finite(gradient);
  Members::Mine& mine = members_.mine();
  const Publication publication = open_.push(gradient, t_of(mine, t_read), mine.stores);
  stepped(mine, publication);
  return publication;
}

Publication Engine::push_sparse(const SparseGradient& gradient, const std::uint64_t* t_read) {
  if (check_finite_) require_finite(gradient);
  Members::Mine& mine = members_.mine();
  const Publication publication = open_.push_sparse(gradient, t_of(mine, t_read));
  stepped(mine, publication);
  return publication;
}

void Engine::stepped(const Members::Mine& mine, const Publication& publication) {
  if (!begun_) return;
  if (publication.published) {
    counters_.published.fetch_add(1, kRelaxed);
    counters_.staleness.fetch_add(publication.staleness_compute + publication.staleness_schedule,
                                  kRelaxed);
  }
  if (publication.lost_to_synchronisation) counters_.lost.fetch_add(1, kRelaxed);
  synchronising([place = mine.place](Synchronisation& others) { others.stepped(place); });
}

Leases::Claim Engine::take(Leases& leases, double seconds, std::uint64_t& j, std::uint64_t& k) {
  check_open();
  const Leases::Claim claim = leases.take(0, j, k);
  if (claim != Leases::Claim::waiting) return claim;
  const Members::Mine& mine = members_.mine();
  if (!begun_ || !mine.pushes) return leases.take(seconds, j, k);
  Leases::Claim later = claim;
  synchronising([&, place = mine.place](Synchronisation& others) {
    others.waiting(place);
    later = leases.take(seconds, j, k);
    if (later != Leases::Claim::waiting) others.resumed(place);
  });
  return later;
}

std::uint64_t Engine::t() {
  if (counts_alone()) return discipline_->updates();
  const std::lock_guard lock(monitor_mutex_);
  return discipline_->updates();
}

std::size_t Engine::states() const { return rule_->states(); }
bool Engine::counts_alone() const { return discipline_->counts_alone(); }
float* Engine::memory() { return discipline_->memory(); }
std::size_t Engine::live_vectors() const { return discipline_->live_vectors(); }

void Engine::with_state(const std::function<void(const float*, std::uint64_t)>& f) {
  const std::lock_guard lock(monitor_mutex_);
  discipline_->with_state([&f](const DisciplineState& state) { f(state.buffer, state.t); });
}

}  // namespace leashed
