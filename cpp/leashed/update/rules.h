// The update rules: each a struct in a file of its own, and a line here. The passes of every
// instruction-set level (kernels/passes.cc), the factory (registry.cc) and the numbers by which
// both know a rule are made from this list.
//
// Such a file is read by the host's code and by the kernels, so it holds nothing that is compiled
// for an instruction set. A rule has
//   kName            what choices call it;
//   kStates          how many vectors of state it keeps beside theta;
//   kSquares         how many of these, the last ones, accumulate squares, which SWAP decays;
//   kKeepsUntouched  whether a parameter whose gradient is 0 stays as it is, and its state;
//   Rule(choice)     which takes its settings;
//   initial_state()  what states hold before the first update;
//   coefficients(lr, updates, c)  which fills in what its formula takes beside c.lr, for the update
//                    after so many, and remembers nothing (coefficients.h has what there is);
//   step<Math>(theta, g, state, c)  its formula for a vector of parameters: the next theta, and
//                    states changed. Math is kernels/math.h. Where two products are added, one is
//                    Math::rounded first: else the compiler chooses which of them it fuses with the
//                    addition, and might choose differently from one pass to the next.
// One that divides one state by the root of another also has
//   mend<Math>(state, c)  where other threads write meanwhile, states may be of several updates,
//                    such as no gradients make together: it brings them to ones that some do, and
//                    leaves those of one thread as they are.
#pragma once

#include <cstddef>
#include <type_traits>

#include "leashed/update/adagrad.h"
#include "leashed/update/adagrad_printed.h"
#include "leashed/update/adam.h"
#include "leashed/update/amsgrad.h"
#include "leashed/update/averaged_sgd.h"
#include "leashed/update/centered_rmsprop.h"
#include "leashed/update/ftrl.h"
#include "leashed/update/momentum.h"
#include "leashed/update/nesterov.h"
#include "leashed/update/passes.h"
#include "leashed/update/rmsprop.h"
#include "leashed/update/sgd.h"

namespace leashed {

template <class... All>
struct RuleList {
  static constexpr std::size_t kCount = sizeof...(All);

  template <class Rule>
  static consteval std::size_t place() {
    std::size_t place = 0;
    const bool found = ((std::is_same_v<Rule, All> || (++place, false)) || ...);
    return found ? place : throw "not a rule";
  }
};
using Rules = RuleList<Sgd,              //
                       AveragedSgd,      //
                       Momentum,         //
                       Nesterov,         //
                       Adagrad,          //
                       AdagradPrinted,   //
                       Rmsprop,          //
                       CenteredRmsprop,  //
                       Adam,             //
                       Amsgrad,          //
                       Ftrl>;

template <class Rule>
constexpr Arithmetic kArithmetic{Rules::place<Rule>()};

}  // namespace leashed
