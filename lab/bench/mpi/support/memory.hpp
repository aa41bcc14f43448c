// Memory that messages are sent from and received into.
#pragma once

#include <cstddef>
#include <span>

namespace mpi_bench {

enum class MemoryKind { gpu, host };

/// Memory of the GPU whose context is current in the constructing thread, or pageable host memory.
/// Everything may throw std::runtime_error; use it from the thread that made it.
class Memory {
 public:
  Memory(MemoryKind kind, std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// The address that MPI and UCX are given; the program reads GPU memory by `read` only.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Copies from and to host memory, complete when they return. Throw std::out_of_range past the
  /// end.
  void write(std::size_t offset, std::span<const std::byte> from);
  void read(std::size_t offset, std::span<std::byte> to) const;

 private:
  void require(std::size_t offset, std::size_t bytes) const;

  MemoryKind kind_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace mpi_bench
