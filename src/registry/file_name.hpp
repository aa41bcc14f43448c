// Names of registry files: "PID-ID", and "new-PID-ID" until the file is complete and locked.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace polypath {

struct RegistryFileName {
  pid_t pid = 0;
  std::uint64_t id = 0;   ///< at random: no two files ever have the same name
  bool complete = false;  ///< a complete file that nobody has locked is one of a dead process

  friend bool operator==(const RegistryFileName&, const RegistryFileName&) = default;
};

std::string to_string(const RegistryFileName& name);
/// Nothing for what is not the name of a registry file.
std::optional<RegistryFileName> parse_file_name(std::string_view text) noexcept;

}  // namespace polypath
