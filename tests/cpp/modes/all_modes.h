// Every mode, those with settings of several kinds, for a few workers.
#pragma once

#include <vector>

#include "leashed/base/choice.h"

namespace leashed {

inline std::vector<Choice> all_modes() {
  return {{"sync"},
          {"bsp"},
          {"bsp", {{"b2", 3}}},
          {"asp"},
          {"all_reduce"},
          {"ssp", {{"s", 0}}},
          {"ssp", {{"s", 2}}},
          {"dssp", {{"lower", 1}, {"upper", 4}}},
          {"hop_bs", {{"b1", 1}}},
          {"hop_bs", {{"b1", 2}, {"m", 3}}},
          {"hop_bw", {{"b3", 1}}},
          {"easgd", {{"alpha", 0.5}, {"gap", 2}}},
          {"local_sgd", {{"h", 2}}},
          {"gba"},
          {"gba", {{"m", 3}, {"iota", 0}}},
          {"switching", {{"gba_batch", 2}}},
          {"automatic", {{"window_ns", 1e5}}},
          {"shat"},
          {"shat", {{"base", 2}}},
          {"shat_root"},
          {"ensemble"},
          {"swarm", {{"h", 2}}},
          {"go_sgd", {{"p", 0.5}}},
          {"ad_psgd"},
          {"d_psgd"},
          {"prague", {{"group", 2}}}};
}

}  // namespace leashed
