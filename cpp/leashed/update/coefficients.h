// The numbers of one update, the same for all parameters.
#pragma once

#include <limits>

namespace leashed {

// ĝ = scale · clamp(g, ±clip) + coupled · θ is the gradient that a rule sees, shrink · θ the
// parameter that it changes. A rule that accumulates squares sees keep times them.
struct Coefficients {
  float scale = 1;  // of the gradient: clipping by norm, staleness; negative: θ climbs
  float lr = 0;     // η, whatever the rule
  // What else a rule's own formula takes; each file says which and how.
  float step = 0;  // η with Adam's corrections
  float momentum = 0;
  float add1 = 0, add2 = 0;  // weight of what is new in the first and the second moment
  float epsilon = 0;
  // The bare passes take these to be as they are here.
  float clip = std::numeric_limits<float>::infinity();  // by value
  float coupled = 0;                                    // weight decay added to the gradient
  float shrink = 1;    // weight decay apart from the gradient: 1 − ηλ
  float keep = 1;      // SWAP's λ
  bool swaps = false;  // now and then λ is not 1, so that squares are any part of what they were

  bool bare() const {
    return clip == std::numeric_limits<float>::infinity() && coupled == 0 && shrink == 1 &&
           keep == 1;
  }
};

}  // namespace leashed
