#include "registry_test.hpp"

#include <unistd.h>

#include <algorithm>

namespace polypath::test {

std::uint64_t test_now_ns = 1000 * kSecond;
namespace {

/// Different for different values, and each bit of one changes half of the other's.
std::uint64_t mixed(std::uint64_t value) {
  value = (value + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 31)) * 0x94d049bb133111eb;
  return value ^ (value >> 29);
}

}  // namespace

IpcHandle handle_of(std::uint64_t number) {
  IpcHandle handle;
  for (std::size_t at = 0; at < handle.size(); ++at)
    handle[at] = static_cast<std::byte>(mixed(number * 64 + at) | 1);
  return handle;
}

GpuUuid uuid_of(std::uint64_t number) {
  GpuUuid uuid;
  for (std::size_t at = 0; at < uuid.size(); ++at)
    uuid[at] = static_cast<std::byte>(mixed(~(number * 16 + at)) | 1);
  return uuid;
}

MemoryRecord record_of(std::uint64_t number, std::uint64_t version) {
  return {.handle = handle_of(number),
          .gpu = uuid_of(version),
          .base = mixed(version),
          .bytes = mixed(version + 1),
          .buffer_id = version};
}

InFlightTransfer flight_of(std::uint64_t number, std::uint64_t for_ns) {
  const FlightEnd gpu = FlightEnd::of_gpu(uuid_of(number));
  const FlightEnd host = FlightEnd::of_host(static_cast<std::int32_t>(number % 8));
  return {.source = number % 2 == 0 ? gpu : host,
          .destination = number % 3 == 0 ? host : FlightEnd::of_gpu(uuid_of(number + 1)),
          .bytes = number,
          .until_ns = monotonic_ns() + for_ns};
}

RegistryTest::RegistryTest() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  // Where the real folder is, if it can be.
  const bool shared_memory = access("/dev/shm", W_OK | X_OK) == 0;
  root_ = std::filesystem::path(shared_memory ? "/dev/shm" : testing::TempDir()) /
          (std::string("registry.") + test->test_suite_name() + "." + test->name() + "." +
           std::to_string(getpid()));
  std::filesystem::remove_all(root_);
  std::filesystem::create_directories(root_);
  folder_ = root_ / "shared";
}

RegistryTest::~RegistryTest() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

std::vector<std::filesystem::path> RegistryTest::files() const {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder_))
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      files.push_back(entry.path());
  return files;
}

std::filesystem::path RegistryTest::file_of(pid_t pid) const {
  const std::string begin = std::to_string(pid) + "-";
  for (const auto& file : files())
    if (file.filename().string().starts_with(begin)) return file;
  return {};
}

std::vector<std::uint64_t> sizes_of_others(Registry& registry) {
  std::vector<InFlightTransfer> flights;
  registry.others(flights);
  std::vector<std::uint64_t> sizes;
  for (const InFlightTransfer& flight : flights) sizes.push_back(flight.bytes);
  std::ranges::sort(sizes);
  return sizes;
}

std::string said_by(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

int registry_lines(const std::string& text) {
  int lines = 0;
  for (std::size_t at = text.find("registry: "); at != std::string::npos;
       at = text.find("registry: ", at + 1))
    ++lines;
  return lines;
}

}  // namespace polypath::test
