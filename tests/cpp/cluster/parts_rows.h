// Tables whose rows lie on several policy servers, and the same on one, to compare with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "cluster/row_frames.h"
#include "leashed/server/row_holder.h"
#include "leashed/table/row_placement.h"

namespace leashed {

// Of three tables one is fixed and one grows, both spread; one is whole on the last server.
class PartsRows {
 public:
  static constexpr std::uint64_t kRowIds = 30;

  // `admit_after`: look-ups before the one that grows takes an id in.
  PartsRows(std::size_t servers, std::uint32_t admit_after)
      : placement_({{false, RowPlacement::kSpread},
                    {true, RowPlacement::kSpread},
                    {false, static_cast<std::uint32_t>(servers - 1)}},
                   RowPlacement::evenly(servers)),
        all_(made(admit_after, [](std::size_t) { return RowPlacement::Shards().set(); })) {
    for (std::size_t s = 0; s < servers; ++s) {
      auto& numbers = numbers_.emplace_back();
      for (std::size_t t = 0; t < 3; ++t) {
        if (placement_.has(t, s)) numbers.push_back(t);
      }
      of_.push_back(made(admit_after, [&](std::size_t t) { return placement_.shards(t, s); }));
    }
  }

  RowHolder* all() { return all_.get(); }
  RowHolder* of(std::size_t server) { return of_[server].get(); }

  // What a batch asks for, by table, and of that what a server is asked for.
  Ids drawn(std::uint64_t number) const {
    Ids ids(3);
    for (std::size_t t = 0; t < 3; ++t) {
      for (std::uint64_t id = 0; id < kRowIds; ++id) {
        if ((number * 7 + id * (t + 3)) % 5 == 0) ids[t].push_back(id);
      }
    }
    return ids;
  }
  Ids of(std::size_t server, const Ids& ids) const {
    Ids found;
    for (const std::size_t t : numbers_[server]) {
      auto& some = found.emplace_back();
      for (const std::uint64_t id : ids[t]) {
        if (placement_(t, id) == server) some.push_back(id);
      }
    }
    return found;
  }
  std::size_t floats(std::size_t server, const Ids& of_server) const {
    std::size_t sum = 0;
    for (std::size_t k = 0; k < of_server.size(); ++k) {
      sum += of_server[k].size() * kDims[numbers_[server][k]];
    }
    return sum;
  }
  // What the servers have of each id, one behind the other, as one server has it.
  std::vector<float> joined(const Ids& ids,
                            const std::vector<std::vector<float>>& by_server) const {
    std::map<std::pair<std::size_t, std::uint64_t>, const float*> where;
    for (std::size_t s = 0; s < by_server.size(); ++s) {
      const Ids its = of(s, ids);
      const float* at = by_server[s].data();
      for (std::size_t k = 0; k < its.size(); ++k) {
        const std::size_t t = numbers_[s][k];
        for (const std::uint64_t id : its[k]) at = (where[{t, id}] = at) + kDims[t];
      }
    }
    std::vector<float> whole;
    for (std::size_t t = 0; t < 3; ++t) {
      for (const std::uint64_t id : ids[t]) {
        const float* const from = where.at({t, id});
        whole.insert(whole.end(), from, from + kDims[t]);
      }
    }
    return whole;
  }

  // On the one server: looks them up under that ticket.
  std::vector<float> pull(const Ids& ids, std::uint64_t ticket) {
    std::vector<float> values(kRowIds * (kDims[0] + kDims[1] + kDims[2]));
    std::vector<float*> to{values.data()};
    for (std::size_t t = 0; t < 2; ++t) to.push_back(to.back() + ids[t].size() * kDims[t]);
    const std::vector<std::span<const std::uint64_t>> each(ids.begin(), ids.end());
    all_->pull(each, keys_[ticket], to);
    values.resize(static_cast<std::size_t>(to.back() - values.data()) + ids[2].size() * kDims[2]);
    return values;
  }
  RowKeys& keys(std::uint64_t ticket) { return keys_.at(ticket); }
  // Gradients as a server keeps them.
  AlignedArray<float> kept(std::uint64_t ticket, const std::vector<float>& gradients) {
    const RowKeys& keys = keys_.at(ticket);
    std::size_t floats = 0;
    for (std::size_t t = 0; t < 3; ++t) floats += all_->gradients_of(t, keys.parts[t].count);
    AlignedArray<float> kept(floats);
    std::fill_n(kept.data(), kept.size(), 0.0f);
    float* to = kept.data();
    const float* from = gradients.data();
    for (std::size_t t = 0; t < 3; ++t) {
      const std::size_t stride = all_->tables()[t]->gradient_stride();
      for (std::size_t i = 0; i < keys.parts[t].count; ++i, from += kDims[t]) {
        std::copy_n(from, kDims[t], to + i * stride);
      }
      to += all_->gradients_of(t, keys.parts[t].count);
    }
    return kept;
  }

  // Whether a server's rows are those of the one.
  bool alike(std::size_t server) {
    Ids every(3, std::vector<std::uint64_t>(kRowIds));
    for (auto& ids : every) std::iota(ids.begin(), ids.end(), 0);
    const Ids its = of(server, every);
    Ids same(3);
    for (std::size_t k = 0; k < its.size(); ++k) same[numbers_[server][k]] = its[k];
    return looked(*of_[server], its, numbers_[server]) == looked(*all_, same, {0, 1, 2});
  }

 private:
  static constexpr std::size_t kDims[] = {3, 5, 2};

  template <class ShardsOf>
  static std::unique_ptr<RowHolder> made(std::uint32_t admit_after, const ShardsOf& shards_of) {
    std::vector<std::shared_ptr<Table>> tables;
    for (std::size_t t = 0; t < 3; ++t) {
      TableSettings settings{.name = std::string(1, static_cast<char>('a' + t)),
                             .dim = kDims[t],
                             .rows = kRowIds,
                             .initial = {"uniform", {{"bound", 0.5}}},
                             .rule = {"sgd", {{"lr", 0.05}}},
                             .staleness = {"power", {{"k", 0.5}}},
                             .seed = 9};
      settings.number = t;
      const RowPlacement::Shards here = shards_of(t);
      if (t != 1) settings.shards = here;
      if (t == 1) {
        settings.rows = 0;
        settings.max_bytes = std::size_t{1} << 20;
        settings.admit_after = admit_after;
      }
      if (here.any()) tables.push_back(std::make_shared<Table>(settings));
    }
    return std::make_unique<RowHolder>(std::move(tables), std::vector<std::size_t>());
  }
  static std::vector<float> looked(RowHolder& holder, const Ids& ids,
                                   const std::vector<std::size_t>& numbers) {
    std::vector<std::vector<float>> each;
    std::vector<float*> to;
    for (std::size_t k = 0; k < ids.size(); ++k) {
      to.push_back(each.emplace_back(ids[k].size() * kDims[numbers[k]] + 1).data());
    }
    const std::vector<std::span<const std::uint64_t>> spans(ids.begin(), ids.end());
    holder.look(spans, to);
    std::vector<float> all;
    for (std::size_t k = 0; k < ids.size(); ++k) {
      all.insert(all.end(), each[k].begin(), each[k].end() - 1);
    }
    return all;
  }

  const RowPlacement placement_;
  std::vector<std::vector<std::size_t>> numbers_;  // by server: of its tables
  const std::unique_ptr<RowHolder> all_;
  std::vector<std::unique_ptr<RowHolder>> of_;
  std::map<std::uint64_t, RowKeys> keys_;  // by ticket
};

}  // namespace leashed
