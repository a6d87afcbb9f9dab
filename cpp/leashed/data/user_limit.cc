#include "leashed/data/user_limit.h"

#include "leashed/base/relaxed.h"

namespace leashed {

void UserLimit::count(const Counts& rows) {
  for (unsigned i = 0; i < kMost; ++i) {
    if (rows[i] > 0) rows_[i].fetch_add(rows[i], kRelaxed);
  }
  unsigned now = halvings_.load(kRelaxed), needed = kMost;
  std::uint64_t kept = 0;
  while (needed > now && (kept += rows_[needed - 1].load(kRelaxed)) <= most_) --needed;
  while (now < needed && !halvings_.compare_exchange_weak(now, needed, kRelaxed)) {
  }
}

}  // namespace leashed
