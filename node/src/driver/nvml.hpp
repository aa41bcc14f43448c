// The table of NVML entry points, filled by dlopen from nvml_symbols.def.
#pragma once

#include <nvml.h>

#include <memory>
#include <string>

namespace polypath {

struct Nvml {
#define POLYPATH_NVML(member, name, type) type member = nullptr;
#include "driver/nvml_symbols.def"
};

/// Opens `library` and initialises NVML. Null, with the reason in `*why`, when it cannot; members
/// that this version lacks are null. nvmlShutdown is called when the last owner is destroyed.
std::shared_ptr<const Nvml> load_nvml(const std::string& library, std::string* why);

}  // namespace polypath
