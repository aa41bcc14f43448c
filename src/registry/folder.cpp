#include "registry/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "base/error.hpp"

namespace polypath {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

/// Why the folder is not to be trusted; null: it is.
const char* objection(const struct stat& status) noexcept {
  if (!S_ISDIR(status.st_mode)) return "is not a folder";
  if (status.st_uid != geteuid()) return "belongs to another user";
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) return "is open to other users (mode not 0700)";
  if ((status.st_mode & S_IRWXU) != S_IRWXU) return "is closed to its owner (mode not 0700)";
  return nullptr;
}

}  // namespace

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
  // A descriptor of its own: closedir() closes it, and its reading position is nobody else's.
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

}  // namespace polypath
