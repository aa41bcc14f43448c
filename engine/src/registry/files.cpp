#include "registry/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace polypath {
namespace {

/// Not stdin, stdout or stderr, in a program that closed its own: what it prints would land in the
/// file.
int above_standard_streams(int number) noexcept {
  if (number < 0 || number > STDERR_FILENO) return number;
  const int moved = fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(number);
  errno = error;
  return moved;
}

constexpr std::string_view kIncomplete = "new-";

template <typename Number>
bool read(std::string_view text, Number& number, int base) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string reason(int error) { return std::generic_category().message(error); }

/// Why the folder is not to be trusted; null: it is.
const char* objection(const struct stat& status) noexcept {
  if (!S_ISDIR(status.st_mode)) return "is not a folder";
  if (status.st_uid != geteuid()) return "belongs to another user";
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) return "is open to other users (mode not 0700)";
  if ((status.st_mode & S_IRWXU) != S_IRWXU) return "is closed to its owner (mode not 0700)";
  return nullptr;
}

std::uint64_t random_id() {
  std::uint64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != sizeof id) throw Error("getrandom() failed");
  return id;
}

/// The header and all flights as an empty file has them: what a busy process writes most often then
/// has its memory already. Places of records take memory when they are used.
std::array<std::byte, kMemoryOffset> empty_head(std::uint64_t id) noexcept {
  std::array<std::byte, kMemoryOffset> head{};
  const StoredHeader header = stored_header(id);
  std::memcpy(head.data(), &header, sizeof header);
  return head;
}

/// Makes the empty file a complete one. The name of the call that failed, with errno; null: none
/// did.
const char* lock_and_fill(int descriptor, std::uint64_t id) noexcept {
  // Past this limit the kernel answers with a signal.
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kFileBytes) {
    errno = EFBIG;
    return "getrlimit(RLIMIT_FSIZE)";
  }
  if (!lock_for_life(descriptor)) return "fcntl(F_SETLK)";
  if (ftruncate(descriptor, kFileBytes) != 0) return "ftruncate";
  const auto head = empty_head(id);
  const ssize_t written = pwrite(descriptor, head.data(), head.size(), 0);
  if (written == static_cast<ssize_t>(head.size())) return nullptr;
  if (written >= 0) errno = ENOSPC;
  return "write";
}

}  // namespace

Descriptor Descriptor::open(int folder, const char* path, int flags, unsigned mode) {
  Descriptor opened;
  const int number = above_standard_streams(openat(folder, path, flags | O_CLOEXEC, mode));
  struct stat status = {};
  if (number < 0 || fstat(number, &status) != 0) return opened;  // fstat() of an open file succeeds
  opened.number_ = number;
  opened.device_ = status.st_dev;
  opened.inode_ = status.st_ino;
  return opened;
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : number_(std::exchange(other.number_, -1)), device_(other.device_), inode_(other.inode_) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = std::exchange(other.number_, -1);
    device_ = other.device_;
    inode_ = other.inode_;
  }
  return *this;
}

std::optional<struct stat> Descriptor::status() const noexcept {
  struct stat status = {};
  if (number_ < 0 || fstat(number_, &status) != 0 || status.st_dev != device_ ||
      status.st_ino != inode_)
    return std::nullopt;
  return status;
}

void Descriptor::close() noexcept {
  if (status()) ::close(number_);
  number_ = -1;
}

std::string to_string(const RegistryFileName& name) {
  return fmt::format("{}{}-{:016x}", name.complete ? std::string_view() : kIncomplete, name.pid,
                     name.id);
}

std::optional<RegistryFileName> parse_file_name(std::string_view text) noexcept {
  RegistryFileName name{.complete = !text.starts_with(kIncomplete)};
  if (!name.complete) text.remove_prefix(kIncomplete.size());
  const auto dash = text.find('-');
  if (dash == std::string_view::npos || text.size() - dash - 1 != 16) return std::nullopt;
  if (!read(text.substr(0, dash), name.pid, 10) || name.pid <= 0 ||
      !read(text.substr(dash + 1), name.id, 16))
    return std::nullopt;
  return name;
}

std::string default_registry_folder() { return fmt::format("/dev/shm/polypath-{}", geteuid()); }

RegistryFolder::RegistryFolder(std::string path) : path_(std::move(path)) {
  struct stat status = {};
  int error = 0;
  do {
    if (mkdir(path_.c_str(), S_IRWXU) != 0 && errno != EEXIST)
      throw Error(fmt::format("{}: {}", path_, reason(errno)));
    error = lstat(path_.c_str(), &status) == 0 ? 0 : errno;
  } while (error == ENOENT);  // it was there, and the last process in it has ended since
  if (error != 0) throw Error(fmt::format("{}: {}", path_, reason(error)));
  if (const char* why = objection(status)) throw Error(fmt::format("{} {}", path_, why));
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

Descriptor RegistryFolder::open() const {
  Descriptor opened =
      Descriptor::open(AT_FDCWD, path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  const auto status = opened.status();
  return status && is_this(*status) ? std::move(opened) : Descriptor();
}

std::optional<timespec> RegistryFolder::changed() const noexcept {
  struct stat status = {};
  if (lstat(path_.c_str(), &status) != 0 || !is_this(status)) return std::nullopt;
  return status.st_mtim;
}

void RegistryFolder::remove_if_empty() const noexcept { rmdir(path_.c_str()); }

bool RegistryFolder::is_this(const struct stat& status) const noexcept {
  return status.st_dev == device_ && status.st_ino == inode_ && objection(status) == nullptr;
}

std::vector<std::string> names_in(const Descriptor& folder) {
  std::vector<std::string> names;
  // A separate descriptor: closedir() closes it, and its reading position is not shared.
  const int number = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (number < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fdopendir(number), closedir);
  if (!entries) {
    close(number);
    return names;
  }
  while (const dirent* entry = readdir(entries.get())) names.emplace_back(entry->d_name);
  return names;
}

std::unique_ptr<OwnFile> OwnFile::create(const RegistryFolder& folder) {
  const Descriptor in = folder.open();
  if (!in) return nullptr;
  RegistryFileName name{.pid = getpid(), .id = random_id(), .complete = false};
  const std::string unfinished = to_string(name);
  Descriptor descriptor =
      Descriptor::open(in.get(), unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  const char* failed = descriptor ? lock_and_fill(descriptor.get(), name.id) : "open";
  name.complete = true;
  const std::string complete = to_string(name);
  if (failed == nullptr && renameat(in.get(), unfinished.c_str(), in.get(), complete.c_str()) != 0)
    failed = "rename";
  if (failed == nullptr)
    return std::unique_ptr<OwnFile>(
        new OwnFile(std::move(descriptor), name.id, folder.path() + "/" + complete));
  const int error = errno;
  unlinkat(in.get(), unfinished.c_str(), 0);
  if (error == ENOENT) return nullptr;
  throw Error(fmt::format("a file in {}: {}: {}", folder.path(), failed,
                          std::generic_category().message(error)));
}

OwnFile::~OwnFile() { unlink(path_.c_str()); }

bool OwnFile::lost() const noexcept {
  const auto status = descriptor_.status();
  return !status || status->st_nlink == 0 || status->st_size != static_cast<off_t>(kFileBytes);
}

bool OwnFile::write(std::size_t offset, const void* data, std::size_t bytes) noexcept {
  return pwrite(descriptor_.get(), data, bytes, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(bytes);
}

}  // namespace polypath
