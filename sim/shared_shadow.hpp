// A shadow in a memory file, which other processes can open by its number and name while this one lives.
// Any thread may use it.
//
// The file holds the bytes, from the next page on one byte a granule that says whether it was touched.
// Whoever touches one holds a lock on the file, which the system gives back if the process is killed.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>

#include "shadow.hpp"

namespace polypath::sim {

class SharedShadow : public Shadow {
 public:
  /// A new one. The name must tell it from every other of any process.
  /// Throws std::bad_alloc when there is no file or address space left.
  SharedShadow(std::size_t bytes, const std::string& name);
  ~SharedShadow() override;

  /// The one that process `pid` made and has under `file`; null when it is no longer there, or another.
  /// Throws std::bad_alloc as above.
  static std::unique_ptr<SharedShadow> open(pid_t pid, int file, std::size_t bytes,
                                            const std::string& name);

  /// Its number among the files of this process.
  [[nodiscard]] int file() const noexcept { return file_; }

 protected:
  bool is_touched(std::size_t granule) override;
  void touch(std::size_t granule, bool is_overwritten) override;

 private:
  SharedShadow(std::size_t bytes, int file);
  void map();
  [[nodiscard]] std::size_t file_bytes() const noexcept;
  [[nodiscard]] std::size_t marks_offset() const noexcept;

  int file_;
  std::mutex mutex_;  // the lock on the file is for all threads of a process in common
};

}  // namespace polypath::sim
