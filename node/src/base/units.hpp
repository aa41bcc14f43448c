// Units of the project, one each: bytes, GB/s = 1e9 bytes per second, microseconds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace polypath {

inline constexpr std::uint64_t kKiB = std::uint64_t{1} << 10;
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

/// Bytes that one GB/s moves in one microsecond.
inline constexpr double kBytesPerGbpsUs = 1e3;

/// Time to move `bytes` at `gbps`, in microseconds. `gbps` must be positive.
constexpr double transfer_us(std::uint64_t bytes, double gbps) noexcept {
  return static_cast<double>(bytes) / (gbps * kBytesPerGbpsUs);
}

/// Rate of `bytes` moved in `us` microseconds, in GB/s; 0 when `us` is not positive.
constexpr double rate_gbps(std::uint64_t bytes, double us) noexcept {
  return us > 0 ? static_cast<double>(bytes) / (us * kBytesPerGbpsUs) : 0.0;
}

/// Reads "4096", "64K", "64KB", "64 KiB", "1.5M", "2G", "1T" (powers of 1024; case ignored).
/// Throws InvalidArgument for anything else, for parts of a byte, and for a value past 2^63.
std::uint64_t parse_bytes(std::string_view text);

/// Writes the shortest exact form that parse_bytes reads: 1536 -> "1536", 67108864 -> "64M".
std::string format_bytes(std::uint64_t bytes);

}  // namespace polypath
