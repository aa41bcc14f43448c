// Symmetric memory with the same layout on all ranks that begins with a table of where each rank
// has the others': what channels and active messages lie in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "driver/resources.hpp"

namespace polypath {

/// Memory of one rank. Calls come from one thread at a time.
class PeerMemory {
 public:
  /// Collective. `wish`: what must be alike on all ranks, byte by byte; `what` names it in errors.
  PeerMemory(Communicator& communicator, std::uint64_t bytes, std::span<const std::byte> wish,
             std::string what);

  [[nodiscard]] Communicator& communicator() const { return communicator_; }
  [[nodiscard]] const SymmetricMemory& memory() const { return symmetric_; }
  template <typename T>
  [[nodiscard]] T* local() const {
    return reinterpret_cast<T*>(symmetric_.local());
  }

  /// Before its first use: words of this rank's part. Returns when they are there.
  void write(std::uint64_t offset, std::span<const std::uint64_t> words);
  /// The same for words of ones alone, at several places.
  void write_ones(const std::vector<std::uint64_t>& offsets);
  /// Collective: when it returns, all ranks have written. `thrown`: what went wrong here.
  void meet(const std::function<void()>& writes);
  /// Collective. Nothing uses it any more.
  void release();

  /// The number of waits for what comes here, in the status record.
  [[nodiscard]] std::uint32_t number() const { return *number_; }
  /// What kernels of the program wait with; `timeout_ms` 0: the communicator's.
  [[nodiscard]] wait_context wait_ctx(std::uint32_t timeout_ms) const;

 private:
  Communicator& communicator_;
  std::string what_;
  SymmetricMemory symmetric_;
  Stream stream_;
  std::shared_ptr<const std::uint32_t> number_;
};

}  // namespace polypath
