// A file descriptor in somebody else's program. Programs close descriptors that are not theirs ("close all
// from 3 on", before they become daemons), and the number then soon means another file: so what is written
// or closed here is first asked whether it is still the file that was opened.
#pragma once

#include <sys/stat.h>

#include <optional>

namespace polypath {

/// Owns one open file. Not thread-safe.
class Descriptor {
 public:
  Descriptor() = default;
  /// open(), with O_CLOEXEC, and never one of the numbers of stdin, stdout and stderr. On failure it is
  /// empty and errno says why.
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

}  // namespace polypath
