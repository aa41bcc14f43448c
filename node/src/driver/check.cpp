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

namespace {

/// "mem_alloc(&address, bytes)" -> "cuMemAlloc_v2": a user knows the driver's functions, not our
/// expressions.
std::string_view exported_name(std::string_view call) {
  const std::string_view member = call.substr(0, call.find('('));
#define POLYPATH_CUDA(field, name, type, need) \
  if (member == #field) return name;
#include "driver/cuda_symbols.def"
  return member;
}

/// "cuMemAlloc_v2 failed: out of memory, CUDA_ERROR_OUT_OF_MEMORY (2)".
std::string failure(const CudaDriver& driver, CUresult result, const char* call) {
  const char* words = nullptr;
  if (driver.get_error_string(result, &words) != CUDA_SUCCESS || words == nullptr)
    return fmt::format("{} failed: {}", exported_name(call), describe(driver, result));
  return fmt::format("{} failed: {}, {}", exported_name(call), words, describe(driver, result));
}

}  // namespace

void throw_driver_error(const CudaDriver& driver, CUresult result, const char* call,
                        const char* file, int line) {
  std::string_view short_file = file;
  if (const auto slash = short_file.rfind('/'); slash != std::string_view::npos)
    short_file.remove_prefix(slash + 1);
  throw DriverError(fmt::format("{} at {}:{}", failure(driver, result, call), short_file, line),
                    static_cast<int>(result));
}

void warn_driver_error(const CudaDriver& driver, CUresult result, const char* call) noexcept {
  try {
    log_message(level_of_result(static_cast<int>(result)), failure(driver, result, call));
  } catch (...) {
    // Nothing is left to report with.
  }
}

}  // namespace polypath
