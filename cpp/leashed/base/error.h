#pragma once

#include <stdexcept>

namespace leashed {

// An error a caller can mend; bindings turn it into Python's ValueError.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace leashed
