// What a policy server behind the first (cluster/part_service.h) says at the end of a run that is
// recorded there.
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "leashed/base/error.h"
#include "leashed/base/relaxed.h"
#include "leashed/cluster/part_service.h"

namespace leashed {

void PartService::end_asked(Peer peer, const FrameHeader& header) {
  if (peer != first_ || !run_.recorded) throw Error("an end that is not asked for by the first");
  ToldEnd asked;
  if (header.length != sizeof asked) throw Error("an end that is none");
  std::memcpy(&asked, links_.at(peer).small.data(), sizeof asked);
  if (asked.position == ToldEnd::kNothing) return end_known_.store(true, kRelaxed);
  end_asked_ = asked.position;
  answer_end();
}

// A copy: it is of one moment.
void PartService::answer_end() {
  if (!end_asked_ || *end_asked_ > position() || first_ == 0) return;
  end_asked_.reset();
  std::vector<std::uint64_t> numbers = follower_->missed();
  const std::size_t missed = numbers.size();
  for (const auto& table : holder_ ? holder_->tables() : std::vector<std::shared_ptr<Table>>()) {
    const Table::Digest one = table->digest();
    numbers.insert(numbers.end(), one.begin(), one.end());
  }
  const ParameterVector::Pin latest = server_.holder().pull();
  const ToldEnded ended{run_.boot, position(), latest.t(), missed, numbers.size() - missed};
  const auto its = std::as_bytes(std::span(latest.data(), server_.holder().dimension()));
  const auto counted = std::as_bytes(std::span(numbers));
  const auto all = std::make_shared<std::vector<std::byte>>(counted.begin(), counted.end());
  all->insert(all->end(), its.begin(), its.end());
  const std::span<const std::byte> bytes(*all);
  post_->send(first_, {.kind = kToldEnded}, std::as_bytes(std::span(&ended, 1)), {&bytes, 1}, all);
}

}  // namespace leashed
