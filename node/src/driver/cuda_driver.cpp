#include "driver/cuda_driver.hpp"

#include <fmt/format.h>

#include "driver/check.hpp"
#include "driver/library.hpp"

namespace polypath {

std::shared_ptr<const CudaDriver> load_cuda_driver(const std::string& library, std::string* why) {
  std::string ignored;
  std::string& reason = why != nullptr ? *why : ignored;
  void* handle = open_library(library, &reason);
  if (handle == nullptr) return nullptr;

  auto driver = std::make_shared<CudaDriver>();
  driver->library = library;
  constexpr bool required = true;
  constexpr bool optional = false;
  const char* missing = nullptr;
#define POLYPATH_CUDA(member, name, type, need)     \
  driver->member = find_symbol<type>(handle, name); \
  if (driver->member == nullptr && (need) && missing == nullptr) missing = name;
#include "driver/cuda_symbols.def"
  static_cast<void>(optional);
  if (missing != nullptr) {
    reason = fmt::format("{} has no {}: the driver is too old", library, missing);
    return nullptr;
  }
  if (const CUresult result = driver->init(0); result != CUDA_SUCCESS) {
    reason = fmt::format("cuInit of {} failed: {}", library, describe(*driver, result));
    return nullptr;
  }
  return driver;
}

}  // namespace polypath
