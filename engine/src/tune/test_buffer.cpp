#include "tune/test_buffer.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.hpp"
#include "base/units.hpp"
#include "exec/numa_binding.hpp"
#include "tune/pattern.hpp"

namespace polypath {
namespace {

/// Device memory is filled and checked by way of a pinned block of this size.
constexpr std::uint64_t kBlockBytes = 16 * kMiB;

int nearest_gpu(const Node& node, MemoryId memory) {
  if (!node.contains(memory))
    throw InvalidArgument(fmt::format("{} is not a memory of {}", to_string(memory), node.name));
  if (memory.is_gpu()) return memory.index;
  const auto near = std::ranges::find(node.gpus, memory.index, &Gpu::numa);
  return near == node.gpus.end() ? 0 : static_cast<int>(near - node.gpus.begin());
}

}  // namespace

/// Pinned host memory, mapped in every context; allocated and freed in `context`.
class TestBuffer::PinnedBlock {
 public:
  PinnedBlock(const CudaDriver& driver, CUcontext context, std::uint64_t bytes)
      : driver_(driver), context_(context), bytes_(bytes) {
    const CurrentContext current(driver, context);
    POLYPATH_CHECK(driver, mem_host_alloc(&address_, bytes, CU_MEMHOSTALLOC_PORTABLE));
  }
  ~PinnedBlock() {
    const CurrentContext current(driver_, context_, std::nothrow);
    POLYPATH_WARN(driver_, mem_free_host(address_));
  }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  [[nodiscard]] std::span<std::byte> first(std::uint64_t bytes) const noexcept {
    return {static_cast<std::byte*>(address_), bytes};
  }
  [[nodiscard]] CUdeviceptr address() const noexcept {
    return reinterpret_cast<CUdeviceptr>(address_);
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_; }

 private:
  const CudaDriver& driver_;
  CUcontext context_;
  void* address_ = nullptr;
  std::uint64_t bytes_;
};

TestBuffer::TestBuffer(const CudaDriver& driver, const Node& node, MemoryId memory,
                       std::uint64_t bytes, bool is_pageable)
    : driver_(driver),
      memory_(memory),
      bytes_(bytes),
      context_(driver, nearest_gpu(node, memory)),
      is_pageable_(is_pageable && memory.is_host()) {
  const CurrentContext current(driver, context_.get());
  if (memory.is_gpu()) {
    block_ = std::make_unique<PinnedBlock>(driver, context_.get(), std::min(bytes, kBlockBytes));
    POLYPATH_CHECK(driver, mem_alloc(&address_, bytes));
  } else {
    const NumaBinding near(node.hosts[static_cast<std::size_t>(memory.index)].numa);
    void* pointer = nullptr;
    if (is_pageable_) {
      pointer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (pointer == MAP_FAILED) throw std::bad_alloc();
      std::memset(pointer, 0, bytes);
    } else {
      POLYPATH_CHECK(driver, mem_host_alloc(&pointer, bytes, CU_MEMHOSTALLOC_PORTABLE));
    }
    address_ = reinterpret_cast<CUdeviceptr>(pointer);
  }
}

TestBuffer::~TestBuffer() {
  const CurrentContext current(driver_, context_.get(), std::nothrow);
  if (memory_.is_gpu()) {
    POLYPATH_WARN(driver_, mem_free(address_));
  } else if (is_pageable_) {
    munmap(host_bytes().data(), bytes_);
  } else {
    POLYPATH_WARN(driver_, mem_free_host(host_bytes().data()));
  }
}

std::span<std::byte> TestBuffer::host_bytes() const noexcept {
  return {reinterpret_cast<std::byte*>(address_), bytes_};
}

void TestBuffer::fill(std::uint64_t seed) {
  if (memory_.is_host()) {
    fill_pattern(host_bytes(), seed);
    return;
  }
  const CurrentContext current(driver_, context_.get());
  const PinnedBlock& block = *block_;
  for (std::uint64_t offset = 0; offset < bytes_; offset += block.size()) {
    const std::uint64_t bytes = std::min(block.size(), bytes_ - offset);
    fill_pattern(block.first(bytes), seed, offset);
    POLYPATH_CHECK(driver_, memcpy_sync(address_ + offset, block.address(), bytes));
  }
}

void TestBuffer::poison(std::uint8_t value) {
  if (memory_.is_host()) {
    std::ranges::fill(host_bytes(), std::byte{value});
    return;
  }
  const Stream stream(driver_, context_.get());
  const CurrentContext current(driver_, context_.get());
  POLYPATH_CHECK(driver_, memset_d8_async(address_, value, bytes_, stream.get()));
  POLYPATH_CHECK(driver_, stream_synchronize(stream.get()));
}

std::optional<std::uint64_t> TestBuffer::first_difference(std::uint64_t seed) const {
  if (memory_.is_host()) return polypath::first_difference(host_bytes(), seed);
  const CurrentContext current(driver_, context_.get());
  const PinnedBlock& block = *block_;
  for (std::uint64_t offset = 0; offset < bytes_; offset += block.size()) {
    const std::uint64_t bytes = std::min(block.size(), bytes_ - offset);
    POLYPATH_CHECK(driver_, memcpy_sync(block.address(), address_ + offset, bytes));
    if (const auto at = polypath::first_difference(block.first(bytes), seed, offset))
      return offset + *at;
  }
  return std::nullopt;
}

}  // namespace polypath
