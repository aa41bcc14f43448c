// The folder that all registry files of one user lie in, and the file of this process in it.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "registry/records.hpp"

namespace polypath {

// A file descriptor in a program that is not polypath's. Programs close descriptors that are not
// theirs ("close all from 3 on", before they become daemons). The number then soon means another
// file. So each write and close first checks that the descriptor is still the file that was opened.

/// Owns one open file. Not thread-safe.
class Descriptor {
 public:
  Descriptor() = default;
  /// open(), with O_CLOEXEC, and never one of the numbers of stdin, stdout and stderr. On failure
  /// it is empty and errno says why.
  static Descriptor open(int folder, const char* path, int flags, unsigned mode = 0);
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;

  explicit operator bool() const noexcept { return number_ >= 0; }
  [[nodiscard]] int get() const noexcept { return number_; }

  /// What fstat() says; nothing when the number does not mean the opened file any more.
  [[nodiscard]] std::optional<struct stat> status() const noexcept;

 private:
  void close() noexcept;

  int number_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Names of registry files: "PID-ID", and "new-PID-ID" until the file is complete and locked.

struct RegistryFileName {
  pid_t pid = 0;
  std::uint64_t id = 0;   ///< at random: no two files ever have the same name
  bool complete = false;  ///< a complete file without a lock is one of a dead process

  friend bool operator==(const RegistryFileName&, const RegistryFileName&) = default;
};

std::string to_string(const RegistryFileName& name);
/// Nothing for what is not the name of a registry file.
std::optional<RegistryFileName> parse_file_name(std::string_view text) noexcept;

// How a process shows that it lives: it holds a POSIX lock on the first byte of its file. The
// kernel drops the lock when the process ends, however it ends, and a forked child does not inherit
// it.
//
// The kernel also drops it when the process closes *any* descriptor of the file. So no process may
// open its own file a second time; names of files begin with their owner's process id to tell
// (file_name.hpp).

inline struct flock first_byte(short type) noexcept {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

/// Takes the lock for this process's life. `descriptor` is open for writing. False: another process
/// has it.
inline bool lock_for_life(int descriptor) noexcept {
  struct flock lock = first_byte(F_WRLCK);
  return fcntl(descriptor, F_SETLK, &lock) == 0;
}

/// Whether a process other than this one holds the lock.
inline bool owner_lives(int descriptor) noexcept {
  struct flock lock = first_byte(F_RDLCK);
  return fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// The folder that all registry files of one user lie in.

/// /dev/shm/polypath-UID, of the effective user.
std::string default_registry_folder();

/// Not thread-safe; const members are.
class RegistryFolder {
 public:
  /// Makes the folder (mode 0700) when it is missing. Throws Error when it cannot be made, or is
  /// not to be trusted: no real folder, another user's, or open to the group or to others.
  explicit RegistryFolder(std::string path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// For openat() and unlinkat(); empty when the path does not lead to this folder any more.
  [[nodiscard]] Descriptor open() const;
  /// When a file in it was last made, renamed or removed; nothing when the path does not lead to
  /// this folder any more. One system call.
  [[nodiscard]] std::optional<timespec> changed() const noexcept;
  /// Removes it if nothing is in it.
  void remove_if_empty() const noexcept;

 private:
  [[nodiscard]] bool is_this(const struct stat& status) const noexcept;

  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// Names of all that is in the folder, "." and ".." included, in no order; empty when it cannot be
/// read.
std::vector<std::string> names_in(const Descriptor& folder);

// The registry file of this process: created, locked and named in that order, so that no process
// ever sees it unfinished, or takes it for one of a dead process.

/// Not thread-safe. Only the process that made it may use or destroy it.
class OwnFile {
 public:
  /// A file with a header, no flight and no record. Null when the folder or the unfinished file was
  /// removed meanwhile: try again. Throws Error when there is no room, or the file cannot be made.
  static std::unique_ptr<OwnFile> create(const RegistryFolder& folder);
  /// Removes the file; with it goes the lock.
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// Whether the file was removed or cut short, or its descriptor and with it the lock was closed.
  /// Others then do not see this process any more, or not all of it. One system call.
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
