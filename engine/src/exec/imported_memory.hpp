// Memory of other processes: what the program opened by CUDA IPC, and an import of its own for each
// other context that copies from or to it.
//
// An import reaches the memory well only from the context that opened it: a copy of any other
// context is bounced by the driver (docs/cuda-notes.md). The legs of staged routes run in contexts
// of other GPUs, so these open the same handle once more.
//
//   opened()       the program opened a handle                                 fast
//   import_into()  opens it for one more GPU                                   slow, any thread
//   address_in()   where that GPU reaches it                                   fast
//   closed()       the program closes it: so do we, before the program does
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "exec/devices.hpp"
#include "exec/retry.hpp"

namespace polypath {

/// A number for memory that the driver does not number; never given out twice, nor by the driver.
unsigned long long unnumbered_buffer() noexcept;

/// One piece of memory as the program opened it in one context. Thread-safe.
class ImportedMemory {
 public:
  /// `holder`: the GPU that it lies on, or -1 when the process that has it did not say. `context`
  /// opened it. `allocation`: the driver's number of what the program has at `start`.
  ImportedMemory(const CUipcMemHandle& handle, CUdeviceptr start, std::uint64_t bytes, int holder,
                 CUcontext context, unsigned long long allocation);

  [[nodiscard]] CUdeviceptr start() const noexcept { return start_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int holder() const noexcept { return holder_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  [[nodiscard]] unsigned long long allocation() const noexcept { return allocation_; }
  /// Tells this piece from any other that is or was at the same address, of this process or of
  /// another.
  [[nodiscard]] unsigned long long buffer() const noexcept { return buffer_; }

  /// Where `gpu`, whose primary context is `context`, reaches what the program has at `address`;
  /// nothing before import_into().
  std::optional<CUdeviceptr> address_in(int gpu, CUcontext context, CUdeviceptr address);
  /// Whether the last import_into() failed for the GPU.
  bool failed(int gpu);
  /// Whether to try import_into() now: the first time, and after a failure with growing pauses.
  bool may_import(int gpu);

 private:
  friend class ImportedMemories;

  CUipcMemHandle handle_;
  CUdeviceptr start_;
  std::uint64_t bytes_;
  int holder_;
  CUcontext context_;
  unsigned long long allocation_;
  unsigned long long buffer_;

  std::mutex opening_;  // held while the driver opens or closes; before mutex_
  std::mutex mutex_;
  int opened_ = 1;                        // by the program; guarded by the mutex of all
  bool closed_ = false;                   // nothing may be opened any more
  std::map<int, CUdeviceptr> addresses_;  // by GPU, of our own imports
  std::map<int, Retry> failed_;           // by GPU
};

/// All of a context. Thread-safe; what was imported and not closed is closed by the destructor.
class ImportedMemories {
 public:
  ImportedMemories(std::shared_ptr<const CudaDriver> driver, Devices& devices);
  ~ImportedMemories();
  ImportedMemories(const ImportedMemories&) = delete;
  ImportedMemories& operator=(const ImportedMemories&) = delete;

  /// The program opened `handle` in `context` and got `start`, which is the driver's `allocation`:
  /// one more time, if it is open there already.
  void opened(const CUipcMemHandle& handle, CUdeviceptr start, std::uint64_t bytes, int holder,
              CUcontext context, unsigned long long allocation);
  /// The program is about to close it; the last time closes our imports, which waits as the driver
  /// waits. Other addresses are none of ours.
  void closed(CUdeviceptr start);

  /// What the program has open at `address`, or null. `allocation`: the driver's number of what is
  /// there now; with its context the program loses imports that it never closes, and others take
  /// their addresses. Fast when nothing is open.
  std::shared_ptr<ImportedMemory> find(CUdeviceptr address, unsigned long long allocation);

  /// Opens `memory` for `gpu`'s primary context, if it is not open there; not once it is closed.
  /// Throws DriverError, and remembers that.
  void import_into(ImportedMemory& memory, int gpu);

 private:
  void close_imports(ImportedMemory& memory);
  /// Tells a driver that wants to know.
  void tell(CUdeviceptr start, std::uint64_t bytes, int holder, CUcontext context) const;

  std::shared_ptr<const CudaDriver> driver_;
  Devices& devices_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::map<CUdeviceptr, std::shared_ptr<ImportedMemory>> open_;  // by start
};

}  // namespace polypath
