#pragma once

#include <string>

#include "leashed/base/error.h"

namespace leashed {

// Why a connection is of no more use, or what was asked of it was not done.
class ConnectionError : public Error {
 public:
  enum class Reason {
    closed,     // by the other side, between two frames
    lost,       // within one, or by an error of the system
    refused,    // what came is no frame that is allowed here
    late,       // the deadline has passed
    cancelled,  // on this side
  };
  ConnectionError(Reason why, const std::string& what) : Error(what), reason(why) {}
  const Reason reason;
};

}  // namespace leashed
