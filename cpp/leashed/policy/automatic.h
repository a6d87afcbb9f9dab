// GBA that switches itself: what gba (6) leaves as future work. A command from outside holds until
// the forecast has said otherwise for long enough.
#pragma once

#include "leashed/policy/forecast.h"
#include "leashed/policy/gba.h"

namespace leashed::modes {

class Automatic {
 public:
  Automatic(const Job& job, const Gba::Settings& gba, const Forecast::Settings& forecast)
      : gba_(job, gba), forecast_(forecast) {}

  const WorkerRule& rule() const { return gba_.rule(); }
  static constexpr bool kHolds = Gba::kHolds;

  bool divides_by_containing() const { return gba_.divides_by_containing(); }
  std::uint64_t examples_leased() const { return gba_.examples_leased(); }
  std::uint64_t largest_lease() const { return gba_.largest_lease(); }
  std::vector<Lease> unfinished() const { return gba_.unfinished(); }
  std::optional<LeaseList::Taken> lease(Node node) const { return gba_.lease(node); }
  const std::vector<LeaseList::Span>& had() const { return gba_.had(); }
  void visit(Archive& archive) { archive(gba_, forecast_); }
  void follow() { gba_.follow(); }
  Gba::Mode mode() const { return gba_.mode(); }

  void on(const Event& event, Time now, Out& out) {
    if (event.kind == Event::Kind::push) forecast_.pushed(event.node, event.ticket, now);
    carry_on(event, now, out);
    const auto faster = forecast_.look(
        now, [&](Node node) { return gba_.present(node); },
        [&](Node node) { return gba_.leased(node); });
    if (faster && *faster != gba_.wanted()) {
      carry_on({Event::Kind::command, 0, 0, 0, static_cast<std::uint32_t>(*faster)}, now, out);
    }
  }

 private:
  void carry_on(const Event& event, Time now, Out& out) {
    const std::size_t before = out.actions().size();
    gba_.on(event, now, out);
    for (const Action& action : out.actions().subspan(before)) {
      if (action.kind == Action::Kind::grant) forecast_.granted(action.node, action.lease, now);
    }
  }

  Gba gba_;
  Forecast forecast_;
};

}  // namespace leashed::modes
