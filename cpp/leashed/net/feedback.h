// Error feedback: what compression has lost is not lost for good, but goes with what is sent later.
#pragma once

#include <cstddef>
#include <span>

#include "leashed/net/codec.h"

namespace leashed {

// Of a vector that changes, and that the other side keeps an estimate of: both begin with the same
// one, the difference is sent, and both move theirs by what comes out of it (Richtárik, Sokolov and
// Fatkhullin, "EF21: a new, simpler, theoretically better, and practically faster error feedback",
// 2021). The estimate's error is that of encoding the change since the last time, and so vanishes
// with it.
//
// to ← values − estimate, encoded; the other side does decode_and_add() with its estimate.
void tell(Codec codec, std::span<const float> values, std::span<float> estimate, std::byte* to);

// Of something that is added up, time after time: `error`, what was missing so far, is sent along,
// and becomes what is missing now (Seide et al., "1-bit stochastic gradient descent and its
// application to data-parallel distributed training of speech DNNs", 2014). `to` may be where the
// values lie.
//
// to ← values + error, encoded.
void encode_with_error(Codec codec, std::span<const float> values, std::span<float> error,
                       std::byte* to);
// sum ← sum + what comes out.
void decode_and_add(Codec codec, const std::byte* from, std::span<float> sum);
// values ← what comes out of `codec`, which lies where they are to be.
void decode_in_place(Codec codec, std::span<float> values);

}  // namespace leashed
