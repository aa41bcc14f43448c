// The registry that all contexts of a process share.
#pragma once

#include <memory>
#include <string>

#include "registry/registry.hpp"

namespace polypath {

/// The process's registry for the setting `registry`: "auto" (default_registry_folder()), "off", or a folder. The
/// same one for the same folder. Never null; thread-safe.
///
/// It is closed when the process exits or the library is unloaded, whoever still holds it then: contexts that
/// are never destroyed leave no file behind.
std::shared_ptr<Registry> process_registry(const std::string& setting);

}  // namespace polypath
