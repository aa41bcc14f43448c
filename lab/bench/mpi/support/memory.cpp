#include "memory.hpp"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "cuda.hpp"

namespace mpi_bench {
namespace {

CUdeviceptr address(const std::byte* pointer) noexcept {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

void copy(MemoryKind kind, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (kind == MemoryKind::host) {
    std::memcpy(to, from, bytes);
  } else {
    const Cuda& cuda = Cuda::get();
    cuda.check(cuda.memcpy_sync(address(to), address(from), bytes), "cuMemcpy");
    // From pageable memory it may return while the last bytes are on their way, and the streams of
    // MPI and UCX do not wait for the default stream.
    cuda.check(cuda.stream_synchronize(nullptr), "cuStreamSynchronize");
  }
}

}  // namespace

Memory::Memory(MemoryKind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
  if (bytes == 0) return;
  if (kind == MemoryKind::host) {
    data_ = new std::byte[bytes];
  } else {
    CUdeviceptr allocated = 0;
    const Cuda& cuda = Cuda::get();
    cuda.check(cuda.mem_alloc(&allocated, bytes),
               fmt::format("cuMemAlloc of {} bytes", bytes).c_str());
    data_ = reinterpret_cast<std::byte*>(allocated);
  }
}

Memory::~Memory() {
  if (kind_ == MemoryKind::host)
    delete[] data_;
  else if (data_ != nullptr)
    Cuda::get().mem_free(address(data_));
}

void Memory::write(std::size_t offset, std::span<const std::byte> from) {
  require(offset, from.size());
  copy(kind_, data_ + offset, from.data(), from.size());
}

void Memory::read(std::size_t offset, std::span<std::byte> to) const {
  require(offset, to.size());
  copy(kind_, to.data(), data_ + offset, to.size());
}

void Memory::require(std::size_t offset, std::size_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset)
    throw std::out_of_range(fmt::format("{} bytes at {} of {}", bytes, offset, bytes_));
}

}  // namespace mpi_bench
