#include "registry/records.hpp"

#include <unistd.h>

#include <cstring>

namespace polypath {
namespace {

/// Mixes each 8-byte word into all bits of the result (multiply and fold). Not against forgers.
std::uint64_t checksum(const void* data, std::size_t bytes, std::uint64_t seed) noexcept {
  std::uint64_t sum = seed ^ 0x9e3779b97f4a7c15;
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(data) + at, sizeof word);
    sum = (sum ^ word) * 0xff51afd7ed558ccd;
    sum ^= sum >> 32;
  }
  sum *= 0xc4ceb9fe1a85ec53;  // the last word has been folded once only
  return sum ^ (sum >> 33);
}

template <typename Stored>
std::uint64_t checksum_of(const Stored& value, std::uint64_t file_id) noexcept {
  static_assert(std::has_unique_object_representations_v<Stored>, "padding has no fixed value");
  static_assert(offsetof(Stored, check) % sizeof(std::uint64_t) == 0);
  static_assert(offsetof(Stored, check) + sizeof value.check == sizeof(Stored));
  return checksum(&value, offsetof(Stored, check), file_id);
}

template <typename Stored>
Stored sealed(Stored value, std::uint64_t file_id) noexcept {
  value.check = checksum_of(value, file_id);
  return value;
}

FlightEnd loaded_end(std::uint32_t kind, const GpuUuid& gpu, std::int32_t numa) noexcept {
  return kind == static_cast<std::uint32_t>(FlightEnd::Kind::gpu) ? FlightEnd::of_gpu(gpu)
                                                                  : FlightEnd::of_host(numa);
}

}  // namespace

std::uint32_t bucket_of(const IpcHandle& handle) noexcept {
  return static_cast<std::uint32_t>(checksum(handle.data(), handle.size(), 0) % kBuckets);
}

StoredHeader stored_header(std::uint64_t file_id) noexcept {
  return sealed(StoredHeader{.magic = kRegistryMagic,
                             .version = kLayoutVersion,
                             .pid = static_cast<std::uint32_t>(getpid()),
                             .id = file_id,
                             .file_bytes = kFileBytes,
                             .check = 0},
                file_id);
}

StoredFlight stored(const InFlightTransfer& flight, std::uint64_t file_id) noexcept {
  return sealed(
      StoredFlight{.source_kind = static_cast<std::uint32_t>(flight.source.kind),
                   .destination_kind = static_cast<std::uint32_t>(flight.destination.kind),
                   .source_gpu = flight.source.gpu,
                   .destination_gpu = flight.destination.gpu,
                   .source_numa = flight.source.numa,
                   .destination_numa = flight.destination.numa,
                   .bytes = flight.bytes,
                   .until_ns = flight.until_ns,
                   .check = 0},
      file_id);
}

StoredMemory stored(const MemoryRecord& record, std::uint64_t sequence,
                    std::uint64_t file_id) noexcept {
  return sealed(StoredMemory{.sequence = sequence,
                             .handle = record.handle,
                             .gpu = record.gpu,
                             .base = record.base,
                             .bytes = record.bytes,
                             .buffer_id = record.buffer_id,
                             .unused = 0,
                             .check = 0},
                file_id);
}

StoredLoad stored(const LoadRecord& record, std::uint64_t file_id) noexcept {
  return sealed(
      StoredLoad{
          .gpu = record.gpu, .to_host = record.to_host, .from_host = record.from_host, .check = 0},
      file_id);
}

bool whole(const StoredHeader& value, std::uint64_t file_id) noexcept {
  return value.check == checksum_of(value, file_id);
}

bool whole(const StoredFlight& value, std::uint64_t file_id) noexcept {
  return value.check == checksum_of(value, file_id);
}

bool whole(const StoredLoad& value, std::uint64_t file_id) noexcept {
  return value.check == checksum_of(value, file_id);
}

bool whole(const StoredMemory& value, std::uint64_t file_id) noexcept {
  return value.check == checksum_of(value, file_id);
}

InFlightTransfer loaded(const StoredFlight& value) noexcept {
  return {loaded_end(value.source_kind, value.source_gpu, value.source_numa),
          loaded_end(value.destination_kind, value.destination_gpu, value.destination_numa),
          value.bytes, value.until_ns};
}

LoadRecord loaded(const StoredLoad& value) noexcept {
  return {value.gpu, value.to_host, value.from_host};
}

MemoryRecord loaded(const StoredMemory& value) noexcept {
  return {value.handle, value.gpu, value.base, value.bytes, value.buffer_id};
}

}  // namespace polypath
