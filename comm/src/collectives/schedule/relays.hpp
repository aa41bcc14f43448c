// GPUs that are no ranks, as this rank uses them: staging memory there, and streams that send on
// from it to other ranks' scratch.
//
// A rank alone decides whether it goes over a relay. A schedule says which bytes may, and the
// receiver waits for the sender's signal by any way. So a relay that cannot be
// had, is loaded or is lost costs its own rank the route, and no agreement.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/task_queue.hpp"
#include "collectives/relay_load.hpp"
#include "comm/communicator.hpp"
#include "driver/resources.hpp"
#include "exec/staging_memory.hpp"

namespace polypath {

class Devices;

/// One that is ready. One thread at a time.
class Relay {
 public:
  /// Makes a context on `gpu`, if the policy of staging allows (exec/staging_policy.hpp), staging
  /// memory of `bytes`, and a way to the scratch of all ranks. `gpu`: as this process numbers it.
  /// Slow; throws Error.
  Relay(Devices& devices, const Communicator& communicator, const SymmetricMemory& scratch, int gpu,
        std::uint64_t bytes);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] int gpu() const noexcept { return gpu_; }
  [[nodiscard]] CUdeviceptr staging() const noexcept { return staging_->address(); }
  /// Where it reaches the scratch of a rank.
  [[nodiscard]] CUdeviceptr scratch(int rank) const {
    return scratch_[static_cast<std::size_t>(rank)];
  }
  /// Its stream to another rank.
  [[nodiscard]] CUstream stream(int rank) const {
    return streams_[static_cast<std::size_t>(rank)].get();
  }
  /// An event of its context, for the step at this place of a program.
  CUevent event(std::size_t place);
  /// Whether its context was not reset since.
  [[nodiscard]] bool is_alive() const noexcept;

 private:
  void close() noexcept;

  Devices& devices_;
  const CudaDriver& driver_;
  const int gpu_;
  CUcontext context_ = nullptr;
  std::unique_ptr<StagingMemory> staging_;
  std::vector<CUdeviceptr> imports_;  // of other processes' scratch; closed with it
  std::vector<CUdeviceptr> scratch_;  // by rank
  std::vector<Stream> streams_;       // by rank
  std::vector<std::unique_ptr<Event>> events_;
};

/// All of a rank. One thread at a time.
class Relays {
 public:
  /// The GPUs of `load`, in the order of the schedules' relays. All must outlive it.
  Relays(Devices& devices, const Communicator& communicator, const SymmetricMemory& scratch,
         RelayLoad& load, std::uint64_t bytes);

  /// Begins to make them ready in the background, the first time.
  void prepare();
  /// Waits until nothing is left to prepare.
  void wait() { preparing_.wait(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t size() const noexcept { return load_.gpus().size(); }

  /// The relays that a call on `stream` uses, by index; null: not ready, lost, or loaded by others.
  std::vector<Relay*> for_call(const RelayLoad::Times& times, CUstream stream);
  /// Whether all are ready, and none is lost.
  [[nodiscard]] bool are_ready();
  /// Their use by others.
  [[nodiscard]] RelayLoad& load() noexcept { return load_; }

  /// It failed: no later call uses it.
  void lose(Relay& relay) noexcept;

 private:
  Devices& devices_;
  const Communicator& comm_;
  const SymmetricMemory& scratch_;
  RelayLoad& load_;
  const std::uint64_t bytes_;
  bool has_begun_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Relay>> ready_;  // by index; of mutex_
  std::vector<std::unique_ptr<Relay>> lost_;   // work under way may use them
  TaskQueue preparing_{1};                     // ends first
};

}  // namespace polypath
