// How an NCCL communicator comes to be a polypath communicator as well:
//
//   1. before NCCL makes it, the rank shows that it is under this library (advertisement.hpp);
//   2. NCCL makes it;
//   3. where all ranks are there: they tell each other what they are, by an NCCL all-gather
//      (agreement.hpp), make polypath's communicator over the same all-gather, and tell each other
//      whether they have it.
//
// A rank that shows itself takes part in 3. Ranks that are not asked for in 3 keep NCCL alone, and
// so do all where one fails in 3, with success: NCCL's communicator is there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "nccl/communicator.hpp"
#include "nccl/host_all_gather.hpp"

namespace polypath::nccl {

/// One rank's part of a communicator that is being made.
class Creation {
 public:
  /// For `ranks` ranks, this one `rank`, on this GPU (-1: the current one). A rank shows itself
  /// unless something is missing on it; all that only this rank can lack it has then.
  Creation(const CommKey& key, int rank, int ranks, bool is_blocking, int gpu) noexcept;
  Creation(Creation&&) noexcept = default;
  Creation& operator=(Creation&&) noexcept = default;

  /// Where NCCL puts the handle, now or at the end of the group.
  void expect(void** handle) noexcept { handle_ = handle; }

  /// It stays NCCL's, and other ranks do not find this one. Before NCCL makes it.
  void leave_with_nccl(const char* why) noexcept;

  [[nodiscard]] const CommKey& key() const noexcept { return key_; }

  /// NCCL has made it: steps 3. Collective where all ranks are there. An NCCL error, when a
  /// rank was lost meanwhile.
  int finish() noexcept;

 private:
  int agree(Communicator& state) noexcept;

  CommKey key_;
  int rank_ = 0;
  int ranks_ = 0;
  bool is_blocking_ = true;
  EngineRef engine_;  ///< null: it does not show itself
  ExchangeBuffers buffers_;
  Advertisement presence_;
  std::string missing_;  ///< why it did not show itself
  void** handle_ = nullptr;
};

/// Before NCCL makes a communicator of `ranks` ranks whose rank here has GPU `gpu` (-1: the current
/// one): loads polypath's kernels there, the first time. Also where the communicator stays NCCL's:
/// its kernels may wait for this process when another one is made, and loading waits for them
/// (docs/adr/0031-begin-beside-kernels.md, words: ok). Not where no communicator could be
/// polypath's.
void load_kernels(int gpu, int ranks) noexcept;

/// Communicators that are made together: by several ranks of this thread, each of which waits for
/// the others, and so needs a thread. One communicator after another, by their keys, which are the
/// same on all ranks: no two ranks wait for each other's next one.
class GroupCreation {
 public:
  /// Before NCCL makes them. Where threads cannot be had, all of them stay NCCL's.
  explicit GroupCreation(std::vector<Creation>& creations) noexcept;
  GroupCreation(const GroupCreation&) = delete;
  GroupCreation& operator=(const GroupCreation&) = delete;
  /// Discards the creations that NCCL did not complete.
  ~GroupCreation();

  /// NCCL has made them. The first error.
  int finish() noexcept;

 private:
  enum class Order : std::uint8_t { wait, finish, leave };
  void tell(Order order) noexcept;
  void make_threads();
  /// Finishes `one`, of the `place`-th communicator, in its turn.
  int finish_in_turn(Creation& creation, std::size_t place) noexcept;

  std::vector<Creation>& creations_;
  std::vector<int> results_;
  std::atomic<Order> order_ = Order::wait;
  std::vector<std::size_t> ranks_left_;  ///< by place: those that have not finished; of `turns_`
  std::mutex turns_;
  std::condition_variable turn_ended_;
  std::vector<std::jthread> threads_;  // none: the ranks do not wait for each other
};

/// Whether communicators with this configuration are made before NCCL returns; `parent`: what holds
/// where the configuration leaves it open.
bool is_blocking(const Config* config, bool parent) noexcept;

}  // namespace polypath::nccl
