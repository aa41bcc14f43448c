#include "lab/file_set.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <system_error>
#include <vector>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/host_side.hpp"
#include "tune/pattern.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kFilePiece = 32 * kMiB;  // at once, and written at once

std::string system_error() { return std::generic_category().message(errno); }

}  // namespace

class FileSet::File {
 public:
  explicit File(const FileRequest& request)
      : descriptor_(request.file.empty() ? make(request.bytes) : open_named(request.file)) {
    struct stat status{};
    if (fstat(descriptor_, &status) == 0) size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  static int open_named(const std::string& name) {
    const int descriptor = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw InvalidArgument(fmt::format("{}: {}", name, system_error()));
    return descriptor;
  }

  static int make(std::uint64_t bytes) {
    const char* const folder = std::getenv("TMPDIR");
    std::string name = fmt::format("{}/polypath-bench-XXXXXX", folder != nullptr ? folder : "/tmp");
    const int descriptor = mkostemp(name.data(), O_CLOEXEC);
    if (descriptor < 0) throw InvalidArgument(fmt::format("{}: {}", name, system_error()));
    unlink(name.c_str());
    std::random_device seeds;
    const std::uint64_t seed = std::uint64_t{seeds()} << 32 | seeds();
    std::vector<std::byte> contents(std::min(bytes, kFilePiece));
    for (std::uint64_t at = 0; at < bytes; at += contents.size()) {
      const auto part = std::span(contents).first(std::min(contents.size(), bytes - at));
      fill_pattern(part, seed + at);
      if (pwrite(descriptor, part.data(), part.size(), static_cast<off_t>(at)) !=
          static_cast<ssize_t>(part.size())) {
        const std::string why = system_error();
        close(descriptor);
        throw InvalidArgument(fmt::format("{} bytes do not fit in {}: {}", bytes, name, why));
      }
    }
    return descriptor;
  }

  int descriptor_;
  std::uint64_t size_ = 0;
};

/// A private mapping of the file's first bytes, for reading.
class FileSet::Mapping {
 public:
  Mapping(int descriptor, std::uint64_t bytes)
      : bytes_(bytes), at_(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0)) {
    if (at_ == MAP_FAILED) throw Error(fmt::format("mmap failed: {}", system_error()));
  }
  ~Mapping() { munmap(at_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return reinterpret_cast<CUdeviceptr>(at_); }

 private:
  std::uint64_t bytes_;
  void* at_;
};

namespace {

std::uint64_t checked_bytes(std::uint64_t asked, std::uint64_t size) {
  if (size == 0) throw InvalidArgument("the file is empty");
  if (asked > size)
    throw InvalidArgument(fmt::format("the file has {} bytes, fewer than {}", size, asked));
  return asked == 0 ? size : asked;
}

}  // namespace

FileSet::FileSet(Context& context, const FileRequest& request)
    : context_(context),
      file_(std::make_unique<File>(request)),
      bytes_(checked_bytes(request.bytes, file_->size())),
      dst_(context.driver(), context.node(), request.dst, bytes_),
      current_(context.devices().context(request.dst.index)),
      stream_(context.driver(), current_),
      stream_handle_(stream_.get()) {
  const auto gpu = static_cast<std::size_t>(request.dst.index);
  const MemoryId near = MemoryId::host(context.node().gpus[gpu].numa);
  context_.prepare({{.src = near, .dst = request.dst, .bytes = bytes_, .is_pageable = true}});
}

FileSet::~FileSet() = default;

void FileSet::issue_native() {
  ContextGuard guard(context_.driver());
  guard.use(current_);
  mapping_.reset();
  mapping_ = std::make_unique<Mapping>(file_->descriptor(), bytes_);
  POLYPATH_CHECK(context_.driver(),
                 memcpy_async(dst_.address(), mapping_->address(), bytes_, stream_.get()));
}

void FileSet::issue_polypath() {
  ContextGuard guard(context_.driver());
  guard.use(current_);
  context_.read_async({{file_->descriptor(), 0}, dst_.address(), bytes_, stream_.get()});
}

void FileSet::verify(const char* way, const std::function<void()>& issue) {
  const CudaDriver& driver = context_.driver();
  dst_.poison();
  issue();
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
  ContextGuard guard(driver);
  guard.use(current_);
  std::vector<std::byte> there(std::min(bytes_, kFilePiece));
  std::vector<std::byte> expected(there.size());
  for (std::uint64_t at = 0; at < bytes_; at += there.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(there.size(), bytes_ - at);
    POLYPATH_CHECK(driver, memcpy_sync(reinterpret_cast<CUdeviceptr>(there.data()),
                                       dst_.address() + at, count));
    read_file({file_->descriptor(), 0}, at, expected.data(), count);
    if (std::memcmp(there.data(), expected.data(), count) == 0) continue;
    const auto end = there.begin() + static_cast<std::ptrdiff_t>(count);
    const auto wrong = std::mismatch(there.begin(), end, expected.begin()).first - there.begin();
    throw Error(fmt::format("{} read of the file is wrong at byte {} of {}", way,
                            at + static_cast<std::uint64_t>(wrong), bytes_));
  }
}

}  // namespace polypath
