// Memory on GPUs that are no ranks (relays), which kernels of all ranks reach: a piece on each. One
// rank makes a piece, so that a relay has one context for all of them. It does so in the
// background, when a call wants it first, and no rank waits for another one.
//
//   want()      from now on a thread of this rank makes its pieces, leaves notes of them on the
//               control segment, and opens those of others
//   is_ready()  this rank reaches all pieces
//
// Whether all ranks are ready is for the caller to agree on (comm/call_levels.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/task_queue.hpp"
#include "comm/symmetric_memory.hpp"

namespace polypath {

class Devices;

/// One rank's. One thread at a time.
class RelayMemory {
 public:
  /// Relay k is `gpus[k]`, as this process numbers them; `bytes` on each. `heap` must outlive it.
  /// After stop() `devices` is not used any more.
  /// `pinned_bytes` of host memory for this rank's kernels come with it.
  RelayMemory(SymmetricHeap& heap, Devices& devices, std::vector<int> gpus, std::uint64_t bytes,
              std::size_t pinned_bytes);
  ~RelayMemory();
  RelayMemory(const RelayMemory&) = delete;
  RelayMemory& operator=(const RelayMemory&) = delete;

  /// Begins, the first time. Returns at once. What fails leaves relays out, on all ranks.
  void want();
  [[nodiscard]] bool was_wanted() const noexcept { return state_ != State::idle; }
  /// This rank reaches all pieces, and knows of none that was lost. Not after stop().
  [[nodiscard]] bool is_ready() const noexcept;
  /// Waits until want() has succeeded or failed, which may take as long as other ranks.
  void wait() { taking_.wait(); }
  [[nodiscard]] std::size_t size() const noexcept { return gpus_.size(); }
  /// Where kernels of this rank address a piece. Throws Error before all are there.
  [[nodiscard]] CUdeviceptr address(std::size_t relay) const;
  /// The host memory, at the same address for kernels. Null before all are there.
  [[nodiscard]] void* pinned() const noexcept;

  /// Ends the thread: nothing more is taken.
  void stop() noexcept;
  [[nodiscard]] bool is_stopped() const noexcept { return is_stopped_; }

  /// A piece that this rank has made, and frees.
  struct Own {
    std::shared_ptr<const PrimaryContext> context;
    CUdeviceptr address = 0;
  };
  struct Released {
    std::vector<Own> on_relays;
    void* pinned = nullptr;
  };
  /// Stops, closes what is open of other ranks, and gives what this rank frees. Nothing may use it
  /// any more.
  Released release() noexcept;

 private:
  enum class State : std::uint8_t { idle, taking, ready, failed };

  [[nodiscard]] int owner(std::size_t relay) const noexcept;
  /// On its thread.
  void take() noexcept;
  /// Throws Error. False: it was stopped, or the communicator aborted.
  bool take_all();
  void make(std::size_t relay);
  void open(std::size_t relay, CUdeviceptr address, const CUipcMemHandle& handle);

  SymmetricHeap& heap_;
  Devices& devices_;
  const std::vector<int> gpus_;
  const std::uint64_t bytes_;
  const std::size_t pinned_bytes_;
  void* pinned_ = nullptr;
  std::vector<CUdeviceptr> addresses_;  // by relay
  std::vector<CUdeviceptr> imports_;    // by relay; 0: addressed directly
  std::vector<Own> own_;                // by relay; of others empty
  std::atomic<State> state_{State::idle};
  std::atomic<bool> is_stopped_{false};
  TaskQueue taking_{1};  // ends first
};

}  // namespace polypath
