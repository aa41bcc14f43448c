// A read of a file to a GPU, measured natively (a mapping of the file, which the driver copies) and
// by polypath, every byte verified.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/context.hpp"
#include "driver/resources.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {

struct FileRequest {
  MemoryId dst;         ///< a GPU
  std::string file;     ///< empty: one of random contents, without a name, in the temporary folder
  std::uint64_t bytes;  ///< 0: all of the file
};

/// Not thread-safe; `context` must outlive it.
class FileSet {
 public:
  /// Opens or writes the file, so that it is in the page cache as far as there is room. Prepares
  /// the routes. Throws InvalidArgument, FileError.
  FileSet(Context& context, const FileRequest& request);
  ~FileSet();
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;

  /// mmap, cuMemcpyAsync, and munmap of the mapping before.
  void issue_native();
  /// polypath_read_async.
  void issue_polypath();

  [[nodiscard]] std::span<const CUstream> streams() const noexcept { return {&stream_handle_, 1}; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Poisons the destination, issues, waits and compares every byte with the file. Throws Error
  /// that names `way`.
  void verify(const char* way, const std::function<void()>& issue);
  /// Nothing: the time that the CPU takes is part of a read.
  [[nodiscard]] std::function<void()> ahead() const { return {}; }

 private:
  class File;
  class Mapping;

  Context& context_;
  std::unique_ptr<File> file_;
  std::uint64_t bytes_;
  TestBuffer dst_;
  CUcontext current_;
  Stream stream_;
  CUstream stream_handle_;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace polypath
