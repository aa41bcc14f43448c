// How a communicator of NCCL's comes to be one of polypath's as well:
//
//   1. before NCCL makes it, the rank shows that it is under this library (presence.hpp);
//   2. NCCL makes it;
//   3. where all ranks are there: they tell each other what they are, by an all-gather of NCCL's
//      (agreement.hpp), make polypath's communicator over the same all-gather, and tell each other
//      whether they have it.
//
// A rank that shows itself takes part in 3. Ranks that are not asked for in 3 keep NCCL alone.
#pragma once

#include <vector>

#include "nccl/communicator.hpp"

namespace polypath::nccl {

/// One rank's part of a communicator that is being made.
class Creation {
 public:
  /// Of `ranks` ranks, this one `rank`, of which `members` will be in it. A rank shows itself
  /// unless something is missing on it.
  Creation(const Key& key, int rank, int ranks, bool is_blocking) noexcept;
  Creation(Creation&&) noexcept = default;
  Creation& operator=(Creation&&) noexcept = default;

  /// Where NCCL puts the handle, now or at the end of the group.
  void expect(void** handle) noexcept { handle_ = handle; }

  /// NCCL has made it: steps 3. Collective where all ranks are there. An error of NCCL's, when a
  /// rank was lost meanwhile.
  int finish() noexcept;

 private:
  int agree(Communicator& its) noexcept;

  Key key_;
  int rank_ = 0;
  int ranks_ = 0;
  bool is_blocking_ = true;
  Presence presence_;
  std::string missing_;  ///< why it did not show itself
  void** handle_ = nullptr;
};

/// All that were made together: of several ranks of this thread at once. The first error.
int finish_all(std::vector<Creation>& creations) noexcept;

/// Whether communicators with this configuration are made before NCCL returns; `parent`: what holds
/// where the configuration leaves it open.
bool is_blocking(const Config* config, bool parent) noexcept;

}  // namespace polypath::nccl
