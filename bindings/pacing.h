// When trainers synchronise and in what codec, as Python says it.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "leashed/cluster/pace.h"
#include "leashed/net/codec.h"

namespace leashed {

inline Codec codec_of(const std::string& compression) {
  if (compression == "none") return Codec::none;
  if (compression == "bfloat16") return Codec::bfloat16;
  if (compression == "int8") return Codec::int8;
  throw pybind11::value_error("compression must be one of none, bfloat16, int8, got '" +
                              compression + "'");
}

inline Pace pace_of(const std::string& pace, std::vector<std::uint64_t> starts,
                    std::vector<double> gaps) {
  const auto kind = pace == "background"   ? Pace::Kind::background
                    : pace == "iterations" ? Pace::Kind::iterations
                                           : Pace::Kind::seconds;
  if (kind != Pace::Kind::background && (gaps.empty() || starts.size() != gaps.size())) {
    throw pybind11::value_error("starts and gaps must have one length, of at least 1");
  }
  if (kind != Pace::Kind::background &&
      (starts.front() != 0 || !std::is_sorted(starts.begin(), starts.end()))) {
    throw pybind11::value_error("starts must begin with 0 and ascend");
  }
  return {kind, std::move(starts), std::move(gaps)};
}

}  // namespace leashed
