// Contents of memory, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "driver/check.hpp"

namespace polypath::test {

using Bytes = std::vector<std::byte>;

/// The same for the same seed.
inline Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Of memory that the current context reaches.
inline Bytes read(const CudaDriver& driver, CUdeviceptr address, std::size_t count) {
  Bytes bytes(count, std::byte{0xA5});
  POLYPATH_CHECK(driver, memcpy_sync(reinterpret_cast<CUdeviceptr>(bytes.data()), address, count));
  return bytes;
}

/// Done when it returns, for all streams. The driver's call alone returns once it has read memory that
/// is not pinned: the bytes may still be on their way, behind which only its own stream waits.
inline void write(const CudaDriver& driver, CUdeviceptr address, const Bytes& bytes) {
  POLYPATH_CHECK(driver,
                 memcpy_sync(address, reinterpret_cast<CUdeviceptr>(bytes.data()), bytes.size()));
  POLYPATH_CHECK(driver, stream_synchronize(nullptr));
}

}  // namespace polypath::test
