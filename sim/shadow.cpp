#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <string_view>

#include "shadow.hpp"

namespace polypath::sim {

const std::byte* Shadow::read(std::size_t offset, std::size_t bytes) {
  prepare(offset, offset + bytes, false);
  return base_ + offset;
}

std::byte* Shadow::overwrite(std::size_t offset, std::size_t bytes) {
  prepare(offset, offset + bytes, true);
  return base_ + offset;
}

void Shadow::write_pattern(std::size_t granule) {
  const std::size_t from = granule * kGranule;
  std::memset(base_ + from, std::to_integer<int>(kPoison), std::min(kGranule, bytes_ - from));
}

/// Prepares the granules of [first, last), all bytes of which are overwritten or none.
void Shadow::prepare(std::size_t first, std::size_t last, bool is_overwritten) {
  for (std::size_t i = first / kGranule; i * kGranule < last; ++i) {
    if (is_touched(i)) continue;
    const bool is_whole = first <= i * kGranule && std::min((i + 1) * kGranule, bytes_) <= last;
    touch(i, is_overwritten && is_whole);
  }
}

PrivateShadow::PrivateShadow(std::size_t bytes) : Shadow(bytes), touched_(granules(bytes), false) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  // Where the system allows it, a page fault for each 2 MiB, not for each 4 KiB.
  ::madvise(base, bytes, MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(base);
}

PrivateShadow::~PrivateShadow() { ::munmap(base_, size()); }

void PrivateShadow::touch(std::size_t granule, bool is_overwritten) {
  touched_[granule] = true;
  if (!is_overwritten) write_pattern(granule);
}

}  // namespace polypath::sim

namespace polypath::sim {
namespace {

constexpr std::size_t kMappedPage = 4096;

/// A lock on the whole file, against other processes and other openings of it.
void lock_file(int file, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  while (::fcntl(file, F_OFD_SETLKW, &lock) != 0 && errno == EINTR) {
  }
}

/// What the system calls the memory file behind the path; empty when it is none.
std::string name_of(const std::string& path) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

SharedShadow::SharedShadow(std::size_t bytes, const std::string& name)
    : SharedShadow(bytes, ::memfd_create(name.c_str(), MFD_CLOEXEC)) {
  // The file's destructor runs from here on.
  if (::ftruncate(file_, static_cast<off_t>(file_bytes())) != 0) throw std::bad_alloc();
  map();
}

SharedShadow::SharedShadow(std::size_t bytes, int file) : Shadow(bytes), file_(file) {
  if (file < 0) throw std::bad_alloc();
}

SharedShadow::~SharedShadow() {
  if (base_ != nullptr) ::munmap(base_, file_bytes());
  ::close(file_);
}

std::unique_ptr<SharedShadow> SharedShadow::open(pid_t pid, int file, std::size_t bytes,
                                                 const std::string& name) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, file);
  // Looked at before it is opened: what has this number now may be anything.
  const std::string wanted = fmt::format("/memfd:{} (deleted)", name);
  if (name_of(path) != wanted) return nullptr;
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened < 0) return nullptr;
  std::unique_ptr<SharedShadow> shadow(new SharedShadow(bytes, opened));
  struct stat found{};
  if (::fstat(opened, &found) != 0 || name_of(fmt::format("/proc/self/fd/{}", opened)) != wanted ||
      static_cast<std::size_t>(found.st_size) != shadow->file_bytes())
    return nullptr;
  shadow->map();
  return shadow;
}

bool SharedShadow::is_touched(std::size_t granule) {
  const auto mark = reinterpret_cast<unsigned char*>(base_ + marks_offset() + granule);
  return std::atomic_ref(*mark).load(std::memory_order_acquire) != 0;
}

void SharedShadow::touch(std::size_t granule, bool is_overwritten) {
  const std::lock_guard lock(mutex_);
  lock_file(file_, F_WRLCK);
  if (!is_touched(granule)) {
    if (!is_overwritten) write_pattern(granule);
    const auto mark = reinterpret_cast<unsigned char*>(base_ + marks_offset() + granule);
    std::atomic_ref(*mark).store(1, std::memory_order_release);
  }
  lock_file(file_, F_UNLCK);
}

void SharedShadow::map() {
  void* const base =
      ::mmap(nullptr, file_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
}

std::size_t SharedShadow::file_bytes() const noexcept { return marks_offset() + granules(size()); }

std::size_t SharedShadow::marks_offset() const noexcept {
  return (size() + kMappedPage - 1) / kMappedPage * kMappedPage;
}

HostShadow::HostShadow(std::size_t bytes)
    : Shadow(bytes), file_(::memfd_create("polypath-sim-host", MFD_CLOEXEC)) {
  if (file_ < 0) throw std::bad_alloc();
  void* base = MAP_FAILED;
  if (::ftruncate(file_, static_cast<off_t>(bytes)) == 0)
    base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (base == MAP_FAILED) {
    ::close(file_);
    throw std::bad_alloc();
  }
  base_ = static_cast<std::byte*>(base);
}

HostShadow::~HostShadow() {
  ::munmap(base_, size());
  ::close(file_);
}

void HostShadow::show(std::uintptr_t address, int access) const {
  if (::mmap(std::bit_cast<void*>(address), size(), access, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
             file_, 0) == MAP_FAILED)
    throw std::bad_alloc();
}

}  // namespace polypath::sim
