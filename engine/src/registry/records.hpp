// What processes of one user tell each other on one machine: plain values.: plain values, and the
// bytes of a registry file that they are stored in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace polypath {

/// A CUipcMemHandle. Opaque: equal bytes mean the same allocation.
using IpcHandle = std::array<std::byte, 64>;

/// As cuDeviceGetUuid_v2 gives it. It means the same GPU in every process, for any value of
/// CUDA_VISIBLE_DEVICES.
using GpuUuid = std::array<std::byte, 16>;

/// Where the memory after an exported handle lies.
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
struct InFlightTransfer {
  FlightEnd source;
  FlightEnd destination;
  std::uint64_t bytes = 0;
  std::uint64_t until_ns = 0;  ///< CLOCK_MONOTONIC; from then on it does not count any more

  friend bool operator==(const InFlightTransfer&, const InFlightTransfer&) = default;
};

/// What a process knows of one direction between a GPU and host memory. Times are CLOCK_MONOTONIC,
/// nanoseconds; 0: never.
struct LoadWords {
  std::uint64_t direct_until_ns = 0;    ///< native copies and direct routes occupy it until then
  std::uint64_t staged_until_ns = 0;    ///< legs of staged routes occupy it until then
  std::uint64_t measured_until_ns = 0;  ///< until then it counts as loaded, by measurement
  std::uint64_t busy_ns = 0;            ///< all predicted times of copies that it ever added up

  [[nodiscard]] bool counts_after(std::uint64_t now_ns) const noexcept {
    return direct_until_ns > now_ns || staged_until_ns > now_ns || measured_until_ns > now_ns;
  }
  friend bool operator==(const LoadWords&, const LoadWords&) = default;
};

/// The load of a GPU's two directions, as one process knows it.
struct LoadRecord {
  GpuUuid gpu{};
  LoadWords to_host;
  LoadWords from_host;

  friend bool operator==(const LoadRecord&, const LoadRecord&) = default;
};

/// A record of another process.
struct OtherLoad {
  std::int32_t pid = 0;
  LoadRecord record;
};

// The bytes of a registry file: a header, the flights, the loads, the memory records.
//
// Everything is read and written by pread() and pwrite(), never mapped: a file that is cut short
// then gives short reads instead of SIGBUS. A reader may see one half of a write that is
// under way; each stored value therefore ends with a checksum over all of itself, seeded with the
// file's id, by which half-written, damaged and foreign bytes are told from whole ones.
//
// A change of a stored struct, an offset or the placing of records must raise kLayoutVersion. The
// names of files and the locked byte (process_lock.hpp) stay as they are, so that every version can
// tell living files from dead ones.

inline constexpr std::uint64_t kRegistryMagic = 0x68746170796c6f70;  ///< "polypath"
inline constexpr std::uint32_t kLayoutVersion = 2;

struct StoredHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t pid;  ///< for people; the owner is known by its lock
  std::uint64_t id;   ///< at random; also in the file's name
  std::uint64_t file_bytes;
  std::uint64_t check;
};

struct StoredFlight {
  std::uint32_t source_kind;
  std::uint32_t destination_kind;
  GpuUuid source_gpu;
  GpuUuid destination_gpu;
  std::int32_t source_numa;
  std::int32_t destination_numa;
  std::uint64_t bytes;
  std::uint64_t until_ns;  ///< 0: nothing is stored here
  std::uint64_t check;
};

struct StoredLoad {
  GpuUuid gpu;  ///< all zero: nothing is stored here
  LoadWords to_host;
  LoadWords from_host;
  std::uint64_t check;
};

struct StoredMemory {
  std::uint64_t sequence;  ///< counts the owner's publications; 0: nothing is stored here
  IpcHandle handle;
  GpuUuid gpu;
  std::uint64_t base;
  std::uint64_t bytes;
  std::uint64_t buffer_id;
  std::uint64_t unused;
  std::uint64_t check;
};
static_assert(sizeof(StoredMemory) == 128);

inline constexpr std::size_t kFlights = 64;  ///< of one process at once
inline constexpr std::size_t kLoads = 32;    ///< GPUs whose load one process tells

// A record lies in one of the places of its bucket, which its handle alone decides: a search reads
// one bucket.
inline constexpr std::uint32_t kBucketPlaces = 16;
inline constexpr std::uint32_t kBuckets = 1024;
inline constexpr std::uint32_t kPlaces = kBuckets * kBucketPlaces;

inline constexpr std::size_t kFlightsOffset = 64;
inline constexpr std::size_t kMemoryOffset = 8192;
inline constexpr std::size_t kFileBytes = kMemoryOffset + kPlaces * sizeof(StoredMemory);
static_assert(sizeof(StoredHeader) <= kFlightsOffset);
inline constexpr std::size_t kLoadsOffset = kFlightsOffset + kFlights * sizeof(StoredFlight);
static_assert(kLoadsOffset + kLoads * sizeof(StoredLoad) <= kMemoryOffset);

std::uint32_t bucket_of(const IpcHandle& handle) noexcept;

StoredFlight stored(const InFlightTransfer& flight, std::uint64_t file_id) noexcept;
StoredMemory stored(const MemoryRecord& record, std::uint64_t sequence,
                    std::uint64_t file_id) noexcept;
StoredLoad stored(const LoadRecord& record, std::uint64_t file_id) noexcept;
StoredHeader stored_header(std::uint64_t file_id) noexcept;

/// Whether `value` is whole, and of the file `file_id`.
bool whole(const StoredHeader& value, std::uint64_t file_id) noexcept;
bool whole(const StoredFlight& value, std::uint64_t file_id) noexcept;
bool whole(const StoredLoad& value, std::uint64_t file_id) noexcept;
bool whole(const StoredMemory& value, std::uint64_t file_id) noexcept;

/// The contents of an intact value.
InFlightTransfer loaded(const StoredFlight& value) noexcept;
LoadRecord loaded(const StoredLoad& value) noexcept;
MemoryRecord loaded(const StoredMemory& value) noexcept;

}  // namespace polypath
