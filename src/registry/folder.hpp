// The folder that all registry files of one user lie in.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "registry/descriptor.hpp"

namespace polypath {

/// /dev/shm/polypath-UID, of the effective user.
std::string default_registry_folder();

/// Not thread-safe; const members are.
class RegistryFolder {
 public:
  /// Makes the folder (mode 0700) when it is missing. Throws Error when it cannot be made, or is not to be
  /// trusted: no real folder, another user's, or open to the group or to others.
  explicit RegistryFolder(std::string path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// For openat() and unlinkat(); empty when the path does not lead to this folder any more.
  [[nodiscard]] Descriptor open() const;
  /// When a file in it was last made, renamed or removed; nothing when the path does not lead to this
  /// folder any more. One system call.
  [[nodiscard]] std::optional<timespec> changed() const noexcept;
  /// Removes it if nothing is in it.
  void remove_if_empty() const noexcept;

 private:
  [[nodiscard]] bool is_this(const struct stat& status) const noexcept;

  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// Names of all that is in the folder, "." and ".." included, in no order; empty when it cannot be read.
std::vector<std::string> names_in(const Descriptor& folder);

}  // namespace polypath
