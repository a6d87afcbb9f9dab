#include "leashed/engine/stop.h"

namespace leashed {

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::none:
      return "none";
    case StopReason::loss_fraction:
      return "loss_fraction";
    case StopReason::loss:
      return "loss";
    case StopReason::updates:
      return "updates";
    case StopReason::epochs:
      return "epochs";
    case StopReason::seconds:
      return "seconds";
    case StopReason::divergence:
      return "divergence";
    case StopReason::patience:
      return "patience";
    case StopReason::not_finite:
      return "not_finite";
    case StopReason::interrupted:
      return "interrupted";
    case StopReason::error:
      return "error";
  }
  return "?";
}

}  // namespace leashed
