// Symmetric memory: all ranks allocate it together, and each can address every other's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/control_segment.hpp"
#include "comm/rank_table.hpp"
#include "comm/shared_host_memory.hpp"
#include "driver/resources.hpp"

namespace polypath {

class CopyEngine;
class DeferredMemory;
class Devices;
class RelayMemory;

/// What moves bytes to it.
enum class SymmetricUse : std::uint8_t {
  /// Copies of the engine as well, over all routes: the engine is told of it, and makes ready what
  /// routes need (contexts on other GPUs, staging memory).
  transfers,
  /// Kernels and signals alone: plain stores of one writer to each word, no atomic operation of two
  /// GPUs. Host memory, where GPUs have no peer access.
  direct,
  /// Kernels with atomic operations on other ranks' memory. Refused without peer access.
  peers,
  /// Kernels of this rank alone: memory of its GPU in any case, without an address for others.
  local
};

/// Where the memory of a communicator's ranks lies, the same on all.
enum class SymmetricPlacement : std::uint8_t {
  gpus,  ///< each rank's on its GPU: all GPUs address each other's memory
  host   ///< what kernels of several ranks address, in pinned host memory that all processes share
};

/// Without peer access, memory of this size at most that is allocated for transfers lies in host
/// memory, so that signals may be in it.
inline constexpr std::uint64_t kMaxHostWords = std::uint64_t{64} << 10;

/// A piece of it, as one rank sees it. Owns nothing: the communicator that allocated it frees it,
/// in its destructor at last.
class SymmetricMemory {
 public:
  SymmetricMemory() = default;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// The number of ranks.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(addresses_.size()); }
  /// Where the memory of `rank` is, for work of this rank's GPU.
  [[nodiscard]] CUdeviceptr address(int rank) const {
    return addresses_.at(static_cast<std::size_t>(rank));
  }
  [[nodiscard]] CUdeviceptr local() const { return address(rank_); }
  /// The number among all that its communicator has allocated: the same on all ranks, and unique.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Whether kernels and signals of this rank may write into the memory of other ranks.
  [[nodiscard]] bool is_shared() const noexcept { return is_shared_; }
  explicit operator bool() const noexcept { return !addresses_.empty(); }

 private:
  friend class SymmetricHeap;
  friend class DeferredMemory;
  ControlSegmentId owner_{};
  std::uint64_t number_ = 0;
  std::uint64_t bytes_ = 0;
  int rank_ = 0;
  bool is_shared_ = true;
  std::vector<CUdeviceptr> addresses_;  // by rank
};

/// What is allocated of memory that other processes open: whole pages of the driver's, since a
/// handle opens whole pages, and what else is on them.
constexpr std::uint64_t exported_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 2 << 20;
  return (bytes + kPage - 1) / kPage * kPage;
}

/// All of one rank. Thread-compatible.
class SymmetricHeap {
 public:
  struct Place {
    std::shared_ptr<const CudaDriver> driver;
    std::shared_ptr<ControlSegment> board;
    const Node& node;
    Members members;
    SymmetricPlacement placement = SymmetricPlacement::gpus;
    std::shared_ptr<const PrimaryContext> context;  ///< of this rank's GPU
    CUstream stream = nullptr;                      ///< for filling with zeros
    /// Learns of memory of other processes for transfers; may be null.
    CopyEngine* engine = nullptr;
    const std::atomic<std::chrono::milliseconds>* limit =
        nullptr;  ///< how long others are waited for
  };
  explicit SymmetricHeap(Place place);
  /// Frees what others do not hold open: release() was called, or nothing was allocated.
  ~SymmetricHeap();
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  /// Collective. Zeroed, on all ranks, when it returns. Throws CommunicatorError, the same on all
  /// ranks; when only memory was short on one of them, the communicator stays usable. Throws
  /// NotSupported for a use that this placement does not serve.
  SymmetricMemory alloc(std::uint64_t bytes, SymmetricUse use = SymmetricUse::transfers);
  /// Pinned host memory that all ranks share, a part of `bytes` for each entry of `hosts`, near to
  /// that host memory. Collective; throws as alloc().
  std::shared_ptr<const SharedHostMemory> alloc_host(std::uint64_t bytes, std::vector<int> hosts,
                                                     Call::Kind call = Call::Kind::alloc_host);
  /// Memory on the GPUs, of `bytes`, for kernels and signals alone, that ranks take when they need
  /// it first: all ranks ask for it at the same place among their calls. Takes nothing yet, and
  /// lasts as long as this. Once for each communicator, whose GPUs have peer access; but before a
  /// call has wanted it, it may be asked for anew, and the earlier one is gone.
  DeferredMemory& defer(std::uint64_t bytes);
  /// Memory on GPUs that are no ranks, for kernels of all ranks: all ranks ask for it at the same
  /// place among their calls. Takes nothing yet, and lasts as long as this, or until it is asked
  /// for anew: then it was stopped, and no call has wanted it. Null: another one is in use, or was.
  /// `devices` is used until RelayMemory::stop(). `pinned_bytes`: of host memory, for this rank.
  RelayMemory* reserve_relays(Devices& devices, std::vector<int> gpus, std::uint64_t bytes,
                              std::size_t pinned_bytes);
  /// Collective. Waits for the work that this rank has on it; what other ranks of this process have
  /// on it must have completed. Throws InvalidArgument for what is not this communicator's.
  void free(const SymmetricMemory& memory);
  /// Throws InvalidArgument unless `memory` is allocated here, and holds the range. `what` names
  /// it.
  void require_range(const SymmetricMemory& memory, std::uint64_t offset, std::uint64_t bytes,
                     const char* what) const;
  /// Where each rank's GPU addresses these bytes of this rank's own memory, by rank. Nothing: they
  /// are not of one allocation whose memory other ranks may write.
  [[nodiscard]] std::optional<std::vector<CUdeviceptr>> peer_addresses(CUdeviceptr address,
                                                                       std::uint64_t bytes) const;
  /// Closes what is open of other processes, and gives a function that frees what is this rank's
  /// own.
  std::function<void()> release();

  /// The memory of one call. Owns nothing.
  struct Piece {
    CUdeviceptr own = 0;                           // 0: in `host`
    std::shared_ptr<const SharedHostMemory> host;  // null: on the GPUs
    std::vector<CUdeviceptr> imports;              // by rank; 0: addressed directly
    std::uint64_t bytes = 0;                       // of `own`
    std::vector<CUdeviceptr> peer_addresses;       // of `own`, by rank; empty: others do not write
    CopyEngine* import_observer = nullptr;         // of the imports
  };

 private:
  friend class DeferredMemory;
  friend class RelayMemory;
  struct Offer;
  struct View;
  /// Whether memory for this use lies in host memory. Throws NotSupported.
  [[nodiscard]] bool goes_to_host(std::uint64_t bytes, SymmetricUse use) const;
  SymmetricMemory alloc_on_host(std::uint64_t bytes);
  SymmetricMemory alloc_on_gpus(std::uint64_t bytes, SymmetricUse use);
  /// As the next one is described, without addresses.
  [[nodiscard]] SymmetricMemory next_memory(std::uint64_t bytes) const;
  Offer offer(Piece& piece, std::uint64_t bytes, SymmetricUse use) const;
  void open(Piece& piece, SymmetricMemory& memory, const std::vector<Offer>& offers) const;
  void close(Piece& piece) const noexcept;

  Place place_;
  std::uint64_t last_number_ = 0;
  std::uint64_t host_memories_ = 0;  // calls for host memory
  std::map<std::uint64_t, Piece> pieces_;
  std::vector<CUdeviceptr>
      lost_;  // this rank's own, of calls that failed here and maybe nowhere else
  std::unique_ptr<DeferredMemory> deferred_;  // null: none was asked for
  std::unique_ptr<RelayMemory> relays_;       // the same
};

}  // namespace polypath
