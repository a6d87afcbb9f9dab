// For threads that are not the training loop's and that come and go (backend/engine.h): reading and
// updating without being a numbered worker. Whoever calls keeps the version read. At most `readers`
// views are held and `workers` pushes made at once.
#pragma once

#include <memory>

#include "leashed/base/error.h"
#include "leashed/discipline/publication.h"
#include "leashed/update/stores.h"
#include "leashed/vector/permits.h"

namespace leashed {

// Theta at one version, for whoever holds it and for as long as they do: neither an update nor the
// end of their thread takes it away, and only the discipline must outlive it. Under Hogwild without
// a copy, and where there is one thread, it is the vector itself, which goes on changing.
class Held {
 public:
  virtual ~Held() {
    if (permit_) permit_->give_back();
  }
  // Gives that permit back when it ends.
  void under(Permits& permit) { permit_ = &permit; }

  View view{};

 private:
  Permits* permit_ = nullptr;
};

class Open {
 public:
  virtual ~Open() = default;

  virtual std::unique_ptr<Held> hold() = 0;
  // `stores` is the calling thread's own.
  virtual Publication push(Gradient gradient, std::uint64_t t_read, StoreChoice& stores) = 0;
  // Changes only what the gradient names.
  virtual Publication push_sparse(const SparseGradient& /*gradient*/, std::uint64_t /*t_read*/) {
    throw Error(
        "a sparse gradient can be pushed under Hogwild only; elsewhere every update writes the "
        "whole vector: push the dense gradient");
  }
};

}  // namespace leashed
