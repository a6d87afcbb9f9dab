// The update rules that there are for rows: those of the vector that change a row only when it gets
// a gradient, by the same formula, and what there is for rows alone. A new one is a line here.
#pragma once

#include "leashed/table/rowwise_adagrad.h"
#include "leashed/update/rules.h"

namespace leashed {

using RowRules = RuleList<Sgd,              //
                          Adagrad,          //
                          AdagradPrinted,   //
                          RowwiseAdagrad,   //
                          Rmsprop,          //
                          CenteredRmsprop,  //
                          Adam,             //
                          Amsgrad,          //
                          Ftrl>;

}  // namespace leashed
