// held_flights FOLDER FROM>TO...: a process that has bytes under way between GPUs, as far as others
// can tell by the registry in FOLDER, until its standard input ends. Says "ready" when they can.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>

#include "base/error.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "registry/registry.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kHourNs = 3600ull * 1'000'000'000;

FlightEnd end_of(const CudaDriver& driver, std::string_view gpu) {
  int index = 0;
  const auto [end, error] = std::from_chars(gpu.data(), gpu.data() + gpu.size(), index);
  if (error != std::errc{} || end != gpu.data() + gpu.size())
    throw InvalidArgument(fmt::format("\"{}\" is not the number of a GPU", gpu));
  CUuuid uuid{};
  POLYPATH_CHECK(driver, device_get_uuid(&uuid, index));
  GpuUuid bytes{};
  static_assert(sizeof bytes == sizeof uuid);
  std::memcpy(bytes.data(), &uuid, sizeof uuid);
  return FlightEnd::of_gpu(bytes);
}

void hold(const char* folder, char** pairs, int count) {
  std::string why;
  const auto driver = load_cuda_driver("libcuda.so.1", &why);
  if (!driver) throw Error(why);
  Registry registry(folder);
  for (int i = 0; i < count; ++i) {
    const std::string_view pair = pairs[i];
    const auto arrow = pair.find('>');
    if (arrow == std::string_view::npos)
      throw InvalidArgument(fmt::format("\"{}\" is not FROM>TO", pair));
    const FlightToken token =
        registry.start({end_of(*driver, pair.substr(0, arrow)),
                        end_of(*driver, pair.substr(arrow + 1)), kMiB, monotonic_ns() + kHourNs});
    if (token.value == 0) throw Error(registry.why_unusable());
  }
  std::puts("ready");
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

}  // namespace
}  // namespace polypath::test

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw polypath::InvalidArgument("usage: held_flights FOLDER FROM>TO...");
    polypath::test::hold(argv[1], argv + 2, argc - 2);
  } catch (const std::exception& error) {
    fmt::print(stderr, "held_flights: {}\n", error.what());
    return 1;
  }
}
