#include "leashed/policy/server_policy.h"

#include <map>
#include <string>

#include "leashed/policy/arguments.h"
#include "leashed/policy/automatic.h"
#include "leashed/policy/bsp.h"
#include "leashed/policy/dssp.h"
#include "leashed/policy/gba.h"
#include "leashed/policy/hop_bw.h"
#include "leashed/policy/peers.h"
#include "leashed/policy/server_easgd.h"
#include "leashed/policy/shat.h"
#include "leashed/policy/ssp.h"

namespace leashed::modes {
namespace {

constexpr double kMost = 0x1p53;
constexpr double kMostAhead = 1e5;  // DSSP tries every r up to it

using Maker = ServerPolicy (*)(const Job&, Arguments&);
using Meet = Peers::Meetings::Kind;

Mixing shat_mixing(Arguments& a) {
  const Mixing mixing{.kind = Mixing::Kind::logarithm, .base = a.number("base", 0, 0, kMost)};
  if (mixing.base == 0 || mixing.base > 1) return mixing;
  throw Error("shat: 'base' must be above 1, or 0 for the natural logarithm");
}

// `batch` is Sync's, `gba_batch` GBA's.
Gba::Settings switching_settings(const Job& job, Arguments& a) {
  return {.m = a.count("m", job.workers),
          .iota = a.whole("iota", 4, 0),
          .divide_by_m = a.flag("divide_by_m"),
          .sync_batch = job.batch,
          .batch = a.whole("gba_batch", static_cast<double>(job.batch), 1),
          .start = Gba::Mode::sync};
}

const std::map<std::string, Maker> kMakers = {
    {"sync",
     [](const Job& job, Arguments&) -> ServerPolicy { return HopBw(job, 0, pulled_gradients()); }},
    {"all_reduce",
     [](const Job& job, Arguments&) -> ServerPolicy { return HopBw(job, 0, reduced_gradients()); }},
    {"bsp",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       return Bsp(job, a.count("b2", job.workers));
     }},
    {"asp", [](const Job& job, Arguments&) -> ServerPolicy { return Bsp(job, 1); }},
    {"ssp",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       return Ssp(job, a.whole("s", std::nullopt, 0));
     }},
    {"dssp",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       const std::uint64_t lower = a.whole("lower", std::nullopt, 0, kMostAhead);
       const auto least = static_cast<double>(lower);
       return Dssp(job, lower, a.whole("upper", std::nullopt, least, kMostAhead));
     }},
    {"hop_bs",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       const std::uint64_t b1 = a.whole("b1", 2, 0);
       return Ssp(job, b1, a.count("m", job.workers));
     }},
    {"hop_bw",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       return HopBw(job, a.count("b3", std::nullopt, 0), pulled_gradients());
     }},
    {"easgd",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       const double alpha = a.number("alpha", std::nullopt, 0, 1);
       return Easgd(job, alpha, a.count("gap", 1));
     }},
    {"local_sgd",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       return HopBw(job, 0, own_models(a.count("h", std::nullopt)));
     }},
    {"gba",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       return Gba(job, {.m = a.count("m", job.workers),
                        .iota = a.whole("iota", 4, 0),
                        .divide_by_m = a.flag("divide_by_m"),
                        .sync_batch = job.batch,
                        .batch = job.batch,
                        .start = Gba::Mode::gba});
     }},
    {"switching",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       return Gba(job, switching_settings(job, a));
     }},
    {"automatic",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       const Gba::Settings gba = switching_settings(job, a);
       Forecast::Settings forecast{};
       forecast.window_ns = static_cast<std::int64_t>(a.whole("window_ns", 1e10, 1));
       forecast.windows = a.count("windows", 3);
       forecast.gain = a.number("gain", 1.2, 1e-3, 1e6);
       forecast.h = a.number("h", 0.1, 0, 1);
       forecast.capacity = a.number("capacity", 0, 0, kMost);
       return Automatic(job, gba, forecast);
     }},
    {"shat",
     [](const Job& job, Arguments& a) -> ServerPolicy { return Shat(job, shat_mixing(a)); }},
    {"shat_root",
     [](const Job& job, Arguments&) -> ServerPolicy {
       return Shat(job, {.kind = Mixing::Kind::root});
     }},
    {"ensemble",
     [](const Job& job, Arguments&) -> ServerPolicy { return Shat(job, {.alpha = 0}); }},
    {"swarm",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       const Peers::Meetings who{.kind = Meet::chance, .seed = a.whole("seed", 0, 0)};
       return Peers(job, who, a.count("h", std::nullopt));
     }},
    {"go_sgd",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       const double p = a.number("p", std::nullopt, 0, 1);
       const Peers::Meetings who{
           .kind = Meet::chance, .probability = p, .seed = a.whole("seed", 0, 0)};
       return Peers(job, who, 1);
     }},
    {"ad_psgd",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       const Peers::Meetings who{.kind = Meet::neighbour, .seed = a.whole("seed", 0, 0)};
       return Peers(job, who, 1);
     }},
    {"d_psgd",
     [](const Job& job, Arguments&) -> ServerPolicy {
       return Peers(job, {.kind = Meet::round}, 1);
     }},
    {"prague",
     [](const Job& job, Arguments& a) -> ServerPolicy {
       Peers::Meetings who{.kind = Meet::groups};
       who.size = a.count("group", 4, 2);
       who.lag = a.whole("lag", 4, 0);
       who.seed = a.whole("seed", 0, 0);
       return Peers(job, who, a.count("h", 1));
     }},
};

// Those that put gradients of several pushes together.
bool sums_gradients(const std::string& mode) {
  for (const char* const name :
       {"sync", "all_reduce", "bsp", "hop_bs", "hop_bw", "gba", "switching", "automatic"}) {
    if (mode == name) return true;
  }
  return false;
}

}  // namespace

ServerPolicy make_server_policy(const Choice& choice) {
  const Maker make = find_choice(kMakers, "mode", choice.name);
  Arguments arguments(choice);
  Job job{};
  job.workers = static_cast<std::uint32_t>(arguments.whole("workers", std::nullopt, 1, kMostNodes));
  job.batch = arguments.whole("batch", std::nullopt, 1);
  job.examples = arguments.whole("examples", 0, 0);
  job.term_ns = static_cast<std::int64_t>(arguments.whole("term_ns", 0, 0));
  job.follows = arguments.flag("follows");
  if (sums_gradients(choice.name)) {
    job.divide_by_containing = arguments.flag("divide_by_containing");
  }
  ServerPolicy machine = make(job, arguments);
  arguments.finish();
  return machine;
}

}  // namespace leashed::modes
