// The registry file of this process: made, locked and named in that order, so that nobody ever sees it
// unfinished, or takes it for one of a dead process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "registry/descriptor.hpp"
#include "registry/folder.hpp"

namespace polypath {

/// Not thread-safe. Only the process that made it may use or destroy it.
class OwnFile {
 public:
  /// A file with a header, no flight and no record. Null when the folder or the unfinished file was removed
  /// meanwhile: try again. Throws Error when there is no room, or the file cannot be made.
  static std::unique_ptr<OwnFile> create(const RegistryFolder& folder);
  /// Removes the file; with it goes the lock.
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// Whether somebody removed the file or cut it short, or closed its descriptor and with it the lock: others
  /// do not see this process any more, or not whole. One system call.
  [[nodiscard]] bool lost() const noexcept;
  /// False when there is no room. Not to be called on a lost file.
  bool write(std::size_t offset, const void* data, std::size_t bytes) noexcept;

 private:
  OwnFile(Descriptor descriptor, std::uint64_t id, std::string path)
      : descriptor_(std::move(descriptor)), id_(id), path_(std::move(path)) {}

  Descriptor descriptor_;
  std::uint64_t id_;
  std::string path_;
};

}  // namespace polypath
