// What processes of one user tell each other on one machine: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace polypath {

/// A CUipcMemHandle. Opaque: equal bytes mean the same allocation.
using IpcHandle = std::array<std::byte, 64>;

/// As cuDeviceGetUuid_v2 gives it. It means the same GPU in every process, whatever CUDA_VISIBLE_DEVICES is.
using GpuUuid = std::array<std::byte, 16>;

/// Where the memory behind an exported handle lies.
struct MemoryRecord {
  IpcHandle handle{};
  GpuUuid gpu{};
  std::uint64_t base = 0;       ///< first address, in the process that exported it
  std::uint64_t bytes = 0;      ///< of the whole allocation
  std::uint64_t buffer_id = 0;  ///< the exporter's CU_POINTER_ATTRIBUTE_BUFFER_ID

  friend bool operator==(const MemoryRecord&, const MemoryRecord&) = default;
};

/// An end of a flight: the memory of a GPU, or the host memory of a NUMA domain.
struct FlightEnd {
  enum class Kind : std::uint8_t { gpu, host };
  Kind kind = Kind::gpu;
  GpuUuid gpu{};          ///< of a GPU
  std::int32_t numa = 0;  ///< of host memory: the operating system's number

  static constexpr FlightEnd of_gpu(const GpuUuid& uuid) noexcept { return {Kind::gpu, uuid, 0}; }
  static constexpr FlightEnd of_host(std::int32_t numa) noexcept { return {Kind::host, {}, numa}; }
  friend bool operator==(const FlightEnd&, const FlightEnd&) = default;
};

/// Bytes that a process has under way.
struct Flight {
  FlightEnd source;
  FlightEnd destination;
  std::uint64_t bytes = 0;
  std::uint64_t until_ns = 0;  ///< CLOCK_MONOTONIC; from then on it does not count any more

  friend bool operator==(const Flight&, const Flight&) = default;
};

}  // namespace polypath
