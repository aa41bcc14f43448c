// Contents of memory, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "driver/check.hpp"

namespace polypath::test {

using Bytes = std::vector<std::byte>;

/// The same for the same seed.
inline Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::size_t at = 0; at < count; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(&bytes[at], &word, std::min(sizeof word, count - at));
  }
  return bytes;
}

/// As ==, which compares byte by byte: seconds for what is large, under a sanitizer.
inline bool is_same(const Bytes& bytes, const Bytes& other) {
  return bytes.size() == other.size() && std::memcmp(bytes.data(), other.data(), bytes.size()) == 0;
}

/// Reads memory that the current context reaches.
inline Bytes read(const CudaDriver& driver, CUdeviceptr address, std::size_t count) {
  Bytes bytes(count, std::byte{0xA5});
  POLYPATH_CHECK(driver, memcpy_sync(reinterpret_cast<CUdeviceptr>(bytes.data()), address, count));
  return bytes;
}

/// Done when it returns, for all streams. The driver's call alone returns once it has read memory
/// that is not pinned: the bytes may still be on their way, after which only its own stream waits.
inline void write(const CudaDriver& driver, CUdeviceptr address, const Bytes& bytes) {
  POLYPATH_CHECK(driver,
                 memcpy_sync(address, reinterpret_cast<CUdeviceptr>(bytes.data()), bytes.size()));
  POLYPATH_CHECK(driver, stream_synchronize(nullptr));
}

/// Device memory of the current context.
class Device {
 public:
  Device(const CudaDriver& driver, const Bytes& contents) : driver_(driver) {
    POLYPATH_CHECK(driver, mem_alloc(&address_, contents.size()));
    write(driver, address_, contents);
  }
  ~Device() { POLYPATH_WARN(driver_, mem_free(address_)); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  [[nodiscard]] CUdeviceptr get() const noexcept { return address_; }

 private:
  const CudaDriver& driver_;
  CUdeviceptr address_ = 0;
};

}  // namespace polypath::test
