// What a training by a mode has come to: the model that it makes, evaluated now and then, and what
// there is to be told at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "leashed/simulation/play_mode.h"
#include "leashed/simulation/played_mode.h"

namespace leashed {

class ModeOutcome {
 public:
  explicit ModeOutcome(PlayedMode& played) : played_(played), staleness_(played.shards.size()) {}

  // Of peers, and of an ensemble, the mean of the models of those who are there, or of all where
  // nobody is: nobody holds another.
  void with_theta(const std::function<void(const float* theta)>& f);
  void evaluate();
  // And the next time is entered.
  void enter_evaluation();
  // What became of a gradient, at one of the servers.
  void settled(std::uint32_t worker, std::size_t shard, const Publication& publication);
  ModeResult finish(std::uint64_t events);

 private:
  PlayedMode& played_;
  std::vector<CountHistogram> staleness_;  // by shard
  AlignedArray<float> held_;
  std::vector<modes::Node> nodes_;
};

}  // namespace leashed
