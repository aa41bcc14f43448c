// Records and flights whose every field follows from a number, and a folder for them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "child.hpp"
#include "registry/registry.hpp"

namespace polypath::test {

inline constexpr std::uint64_t kSecond = 1'000'000'000;  // nanoseconds

/// Looks for others at every call, and tells every flight.
inline constexpr RegistryTimes kEager{.look_every_ns = 0, .long_flight_ns = 0};

/// The handle of allocation `number`: 64 bytes without a zero among them.
IpcHandle handle_of(std::uint64_t number);
GpuUuid uuid_of(std::uint64_t number);
/// A record with handle_of(number). All its other fields follow from `version`.
MemoryRecord record_of(std::uint64_t number, std::uint64_t version);
/// All fields follow from `number`; it counts for `for_ns`.
InFlightTransfer flight_of(std::uint64_t number, std::uint64_t for_ns = 1000 * kSecond);

/// The same by a clock of the test's own, which children inherit as it is.
extern std::uint64_t test_now_ns;
inline constexpr RegistryTimes kByTestClock{
    .now_ns = []() noexcept { return test_now_ns; }, .look_every_ns = 0, .long_flight_ns = 0};

/// A folder path where nothing is yet, for one test. Removed with all that is in it.
class RegistryTest : public testing::Test {
 protected:
  RegistryTest();
  ~RegistryTest() override;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// Paths of all that is in it.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;
  /// The one that `pid` made.
  [[nodiscard]] std::filesystem::path file_of(pid_t pid) const;

 private:
  std::filesystem::path root_;
  std::string folder_;
};

/// The flights that `registry` sees, by size: only `bytes` of flight_of() is looked at.
std::vector<std::uint64_t> sizes_of_others(Registry& registry);
/// What `body` writes to stderr.
std::string said_by(const std::function<void()>& body);
/// In how many lines of `text` the log speaks of the registry.
int registry_lines(const std::string& text);

}  // namespace polypath::test
