#include "driver/check.hpp"

#include <fmt/format.h>

#include <string_view>

#include "base/log.hpp"

namespace polypath {

std::string describe(const CudaDriver& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr)
    name = "unknown error";
  return fmt::format("{} ({})", name, static_cast<int>(result));
}

void throw_driver_error(const CudaDriver& driver, CUresult result, const char* call,
                        const char* file, int line) {
  std::string_view short_file = file;
  if (const auto slash = short_file.rfind('/'); slash != std::string_view::npos)
    short_file.remove_prefix(slash + 1);
  throw DriverError(
      fmt::format("{} failed: {} at {}:{}", call, describe(driver, result), short_file, line),
      static_cast<int>(result));
}

void warn_driver_error(const CudaDriver& driver, CUresult result, const char* call) noexcept {
  try {
    log_warn("{} failed: {}", call, describe(driver, result));
  } catch (...) {
    // Nothing is left to report with.
  }
}

}  // namespace polypath
