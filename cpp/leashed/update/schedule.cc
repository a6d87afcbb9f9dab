#include "leashed/update/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace leashed {
namespace {

using Pointer = std::unique_ptr<const Schedule>;

class Constant final : public Schedule {
 public:
  explicit Constant(double lr) : lr_(lr) {}
  double at(std::uint64_t) const override { return lr_; }
  double largest() const override { return lr_; }

 private:
  const double lr_;
};

// η · factor^⌊t / every⌋.
class Stepwise final : public Schedule {
 public:
  explicit Stepwise(const Choice& c)
      : lr_(c["lr"]), every_(static_cast<std::uint64_t>(c["every"])), factor_(c["factor"]) {}
  double at(std::uint64_t t) const override {
    return lr_ * std::pow(factor_, static_cast<double>(t / every_));
  }
  double largest() const override {
    return factor_ > 1 ? std::numeric_limits<double>::infinity() : lr_;
  }

 private:
  const double lr_;
  const std::uint64_t every_;
  const double factor_;
};

// η · (1 + t / steps)^−power.
class Inverse final : public Schedule {
 public:
  explicit Inverse(const Choice& c) : lr_(c["lr"]), steps_(c["steps"]), power_(c["power"]) {}
  double at(std::uint64_t t) const override {
    return lr_ * std::pow(1 + static_cast<double>(t) / steps_, -power_);
  }
  double largest() const override { return lr_; }

 private:
  const double lr_, steps_, power_;
};

// Half a cosine from η at 0 to `final` at `total`, and `final` from there on.
class Cosine final : public Schedule {
 public:
  explicit Cosine(const Choice& c) : lr_(c["lr"]), total_(c["total"]), final_(c["final"]) {}
  double at(std::uint64_t t) const override {
    const double share = std::min(static_cast<double>(t) / total_, 1.0);
    return final_ + (lr_ - final_) * 0.5 * (1 + std::cos(std::numbers::pi * share));
  }
  double largest() const override { return std::max(lr_, final_); }

 private:
  const double lr_, total_, final_;
};

// Another schedule, times what rises linearly from `start` to 1 over the first `steps` updates.
class Warmup final : public Schedule {
 public:
  Warmup(const Choice& c, Pointer then)
      : steps_(c["steps"]), start_(c["start"]), then_(std::move(then)) {}
  double at(std::uint64_t t) const override {
    const double share = std::min((static_cast<double>(t) + 1) / steps_, 1.0);
    return then_->at(t) * (start_ + (1 - start_) * share);
  }
  double largest() const override { return then_->largest() * std::max(start_, 1.0); }

 private:
  const double steps_, start_;
  const Pointer then_;
};

// Another schedule, times the number of workers.
class Scaled final : public Schedule {
 public:
  Scaled(Pointer base, std::size_t workers)
      : base_(std::move(base)), workers_(static_cast<double>(workers)) {}
  double at(std::uint64_t t) const override { return base_->at(t) * workers_; }
  double largest() const override { return base_->largest() * workers_; }

 private:
  const Pointer base_;
  const double workers_;
};

using Factory = Pointer (*)(const Choice&, std::size_t workers);

const std::map<std::string, Factory> kSchedules = {
    {"step", [](const Choice& c, std::size_t) -> Pointer { return std::make_unique<Stepwise>(c); }},
    {"inverse",
     [](const Choice& c, std::size_t) -> Pointer { return std::make_unique<Inverse>(c); }},
    {"cosine", [](const Choice& c, std::size_t) -> Pointer { return std::make_unique<Cosine>(c); }},
    {"warmup",
     [](const Choice& c, std::size_t workers) -> Pointer {
       return std::make_unique<Warmup>(c, make_schedule(c, "schedule", workers));
     }},
    {"scaled",
     [](const Choice& c, std::size_t workers) -> Pointer {
       return std::make_unique<Scaled>(make_schedule(c, "schedule", workers), workers);
     }},
};

}  // namespace

std::unique_ptr<const Schedule> make_schedule(const Choice& choice, const std::string& key,
                                              std::size_t workers) {
  if (!choice.parts.contains(key)) return std::make_unique<Constant>(choice[key]);
  const Choice& part = choice.part(key);
  return find_choice(kSchedules, "schedule", part.name)(part, workers);
}

}  // namespace leashed
