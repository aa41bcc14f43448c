#include "driver/nvml.hpp"

#include <fmt/format.h>

#include "driver/library.hpp"

namespace polypath {

std::shared_ptr<const Nvml> load_nvml(const std::string& library, std::string* why) {
  std::string ignored;
  std::string& reason = why != nullptr ? *why : ignored;
  void* handle = open_library(library, &reason);
  if (handle == nullptr) return nullptr;

  auto table = std::make_unique<Nvml>();
#define POLYPATH_NVML(member, name, type) table->member = find_symbol<type>(handle, name);
#include "driver/nvml_symbols.def"
  if (table->init == nullptr || table->shutdown == nullptr) {
    reason = library + " has no nvmlInit_v2";
    return nullptr;
  }
  if (const nvmlReturn_t result = table->init(); result != NVML_SUCCESS) {
    reason = fmt::format("nvmlInit of {} failed ({})", library, static_cast<int>(result));
    return nullptr;
  }
  return {table.release(), [](const Nvml* loaded) {
            loaded->shutdown();
            delete loaded;
          }};
}

}  // namespace polypath
