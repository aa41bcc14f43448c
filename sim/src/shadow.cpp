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
#include <optional>
#include <utility>
#include <vector>

#include "shadow.hpp"

namespace polypath::sim {

namespace {

constexpr std::size_t kMappedPage = 4096;
constexpr std::size_t kMaxKeptShadowBytes = std::size_t{512} << 20;
constexpr std::size_t kMaxKeptArenas = 256;
constexpr std::size_t kMaxKeptFiles = 32;

std::size_t whole_units(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

const std::byte* Shadow::read(std::size_t offset, std::size_t bytes) {
  prepare({offset, offset + bytes, Use::reads});
  return base_ + offset;
}

std::byte* Shadow::overwrite(std::size_t offset, std::size_t bytes) {
  prepare({offset, offset + bytes, Use::overwrites});
  return base_ + offset;
}

void Shadow::clear(std::size_t offset, std::size_t bytes) {
  const std::size_t last = offset + bytes;
  for (std::size_t first = offset; first < last;) {
    const std::size_t granule = first / kGranule;
    const std::size_t next = std::min(last, (granule + 1) * kGranule);
    const bool is_whole = first % kGranule == 0 && (next - first == kGranule || next == size());
    if (marks_ != nullptr && is_whole && mark(granule) != Mark::touched) {
      touch(granule, granule + 1, {first, next, Use::clears});
    } else {
      std::memset(overwrite(first, next - first), 0, next - first);
    }
    first = next;
  }
}

/// Few different ones, so that later allocations can use the memory again.
std::size_t Shadow::capacity_for(std::size_t bytes) {
  if (bytes <= kGranule) return whole_units(std::max<std::size_t>(bytes, 1), kMappedPage);
  return whole_units(bytes, std::max(kGranule, std::bit_floor(bytes) / 4));
}

void Shadow::write_pattern(std::size_t first, std::size_t last) const {
  if (first < last) std::memset(base_ + first, std::to_integer<int>(kPoison), last - first);
}

void Shadow::prepare(const Range& range) {
  if (marks_ == nullptr) return;
  const std::size_t end = granules(range.last);
  for (std::size_t i = range.first / kGranule; i < end; ++i)
    if (!is_ready(i, range.use)) return touch(i, end, range);
}

/// Writes the pattern to whole granules, but those of which all is about to be overwritten.
void Shadow::touch(std::size_t begin, std::size_t end, const Range& range) {
  for (std::size_t i = begin; i < end; ++i) {
    if (is_ready(i, range.use)) continue;
    const Mark before = mark(i);
    const std::size_t first = i * kGranule;
    const std::size_t last = std::min(first + kGranule, capacity());
    const bool is_whole = range.first <= first && std::min(last, size()) <= range.last;
    if (range.use == Use::clears && before == Mark::none) {
      set_mark(i, Mark::cleared);
      continue;
    }
    if (range.use == Use::clears)
      std::memset(base_ + first, 0, last - first);
    else if (before != Mark::cleared && (range.use == Use::reads || !is_whole))
      write_pattern(first, last);
    set_mark(i, Mark::touched);
  }
}

// ---- private ----

class PrivateShadow::Arena {
 public:
  explicit Arena(std::size_t capacity) : capacity_(capacity), marks_(granules(capacity)) {
    void* const base = ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(base);
  }
  ~Arena() {
    if (base_ != nullptr) ::munmap(base_, capacity_);
  }
  Arena(Arena&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        capacity_(other.capacity_),
        marks_(std::move(other.marks_)) {}
  Arena& operator=(Arena&&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] Mark* marks() noexcept { return marks_.data(); }
  [[nodiscard]] std::size_t resident_bytes() const noexcept {
    return static_cast<std::size_t>(std::ranges::count(marks_, Mark::stale)) * kGranule;
  }
  /// No allocation has it any more.
  void forget() {
    std::ranges::replace(marks_, Mark::touched, Mark::stale);
    std::ranges::replace(marks_, Mark::cleared, Mark::none);
  }

 private:
  std::byte* base_;
  std::size_t capacity_;
  std::vector<Mark> marks_;  // one a granule
};

Kept<PrivateShadow::Arena>& PrivateShadow::kept() {
  // Never destroyed: nor is the driver.
  static auto* const arenas = new Kept<Arena>(kMaxKeptShadowBytes, kMaxKeptArenas);
  return *arenas;
}

PrivateShadow::PrivateShadow(std::size_t bytes) : Shadow(bytes) {
  const std::size_t capacity = capacity_for(bytes);
  std::optional<Arena> arena = kept().take(capacity);
  arena_ = std::make_unique<Arena>(arena ? std::move(*arena) : Arena(capacity));
  base_ = arena_->base();
  capacity_ = arena_->capacity();
  marks_ = arena_->marks();
}

PrivateShadow::~PrivateShadow() {
  arena_->forget();
  kept().keep(std::move(*arena_));
}

/// There is no reader before the caller has written: what it overwrites takes no pattern.
void PrivateShadow::touch(std::size_t begin, std::size_t end, const Range& range) {
  if (range.use != Use::overwrites) return Shadow::touch(begin, end, range);
  for (std::size_t i = begin; i < end; ++i) {
    if (is_ready(i, range.use)) continue;
    const std::size_t first = i * kGranule;
    const std::size_t last = std::min(first + kGranule, size());
    if (mark(i) != Mark::cleared) {
      write_pattern(first, std::min(last, range.first));
      write_pattern(std::max(first, range.last), last);
    }
    set_mark(i, Mark::touched);
  }
}

}  // namespace polypath::sim

namespace polypath::sim {
namespace {

/// A lock on the whole file, against other processes and other openings of it.
void lock_file(int file, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  while (::fcntl(file, F_OFD_SETLKW, &lock) != 0 && errno == EINTR) {
  }
}

/// What the system calls the memory file after the path; empty when it is none.
std::string name_of(const std::string& path) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

// ---- shared ----

class SharedShadow::File {
 public:
  struct Header {
    Identity identity;  // all zero while no allocation has the file
    std::uint64_t capacity;
  };

  /// Takes the open file over.
  explicit File(int number) : number_(number) {
    if (number < 0) throw std::bad_alloc();
  }
  ~File() {
    if (base_ != nullptr) ::munmap(base_, file_bytes(capacity_));
    if (number_ >= 0) ::close(number_);
  }
  File(File&& other) noexcept
      : number_(std::exchange(other.number_, -1)),
        base_(std::exchange(other.base_, nullptr)),
        capacity_(other.capacity_),
        used_(other.used_) {}
  File& operator=(File&&) = delete;

  static std::size_t bytes_offset(std::size_t capacity) {
    return whole_units(sizeof(Header) + granules(capacity), kMappedPage);
  }
  static std::size_t file_bytes(std::size_t capacity) { return bytes_offset(capacity) + capacity; }

  void map(std::size_t capacity) {
    void* const base = ::mmap(nullptr, file_bytes(capacity), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_NORESERVE, number_, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(base);
    capacity_ = capacity;
  }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t resident_bytes() const noexcept { return used_; }
  void use(std::size_t bytes) noexcept { used_ = bytes; }
  [[nodiscard]] Header& header() const noexcept { return *reinterpret_cast<Header*>(base_); }
  [[nodiscard]] Mark* marks() const noexcept {
    return reinterpret_cast<Mark*>(base_ + sizeof(Header));
  }
  [[nodiscard]] std::byte* bytes() const noexcept { return base_ + bytes_offset(capacity_); }

 private:
  int number_;
  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
};

Kept<SharedShadow::File>& SharedShadow::kept() {
  static auto* const files = new Kept<File>(kMaxKeptShadowBytes, kMaxKeptFiles);
  return *files;
}

SharedShadow::SharedShadow(const Identity& identity, const std::string& name)
    : SharedShadow(identity, nullptr, false) {
  const std::size_t capacity = capacity_for(identity.bytes);
  if (std::optional<File> file = kept().take(capacity)) {
    file_ = std::make_unique<File>(std::move(*file));
  } else {
    file_ = std::make_unique<File>(::memfd_create(name.c_str(), MFD_CLOEXEC));
    const auto bytes = static_cast<off_t>(File::file_bytes(capacity));
    if (::ftruncate(file_->number(), bytes) != 0) throw std::bad_alloc();
    file_->map(capacity);
    file_->header().capacity = capacity;
  }
  file_->header().identity = identity;
  base_ = file_->bytes();
  marks_ = file_->marks();
  capacity_ = file_->capacity();
}

SharedShadow::SharedShadow(const Identity& identity, std::unique_ptr<File> file, bool is_exported)
    : Shadow(identity.bytes), file_(std::move(file)), is_exported_(is_exported) {
  if (!file_) return;
  base_ = file_->bytes();
  marks_ = file_->marks();
  capacity_ = file_->capacity();
}

SharedShadow::~SharedShadow() {
  if (!file_ || file_->capacity() == 0 || is_exported_) return;
  forget();
  kept().keep(std::move(*file_));
}

/// Writes the pattern to all that was touched: a thread that reads too early never finds what an
/// earlier allocation held.
void SharedShadow::forget() const {
  file_->header().identity = {};
  std::size_t used = 0;
  for (std::size_t i = 0; i < granules(capacity()); ++i) {
    if (mark(i) == Mark::cleared) set_mark(i, Mark::none);
    if (mark(i) != Mark::touched) continue;
    const std::size_t last = std::min((i + 1) * kGranule, capacity());
    write_pattern(i * kGranule, last);
    used += last - i * kGranule;
  }
  file_->use(used);
}

int SharedShadow::export_file() noexcept {
  is_exported_ = true;
  return file_->number();
}

std::unique_ptr<SharedShadow> SharedShadow::open(pid_t pid, int file, const Identity& identity,
                                                 const std::string& name) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, file);
  // Looked at before it is opened: what has this number now may be anything.
  const std::string link = fmt::format("/memfd:{} (deleted)", name);
  if (name_of(path) != link) return nullptr;
  const int number = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (number < 0) return nullptr;
  auto opened = std::make_unique<File>(number);
  struct stat status{};
  File::Header header{};
  if (::fstat(number, &status) != 0 || name_of(fmt::format("/proc/self/fd/{}", number)) != link ||
      ::pread(number, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      header.identity != identity || header.capacity < identity.bytes ||
      static_cast<std::size_t>(status.st_size) != File::file_bytes(header.capacity))
    return nullptr;
  opened->map(header.capacity);
  return std::unique_ptr<SharedShadow>(new SharedShadow(identity, std::move(opened), true));
}

void SharedShadow::touch(std::size_t begin, std::size_t end, const Range& range) {
  const std::lock_guard lock(mutex_);
  lock_file(file_->number(), F_WRLCK);
  Shadow::touch(begin, end, range);
  lock_file(file_->number(), F_UNLCK);
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
