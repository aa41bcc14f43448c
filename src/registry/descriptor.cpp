#include "registry/descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace polypath {
namespace {

/// Not stdin, stdout or stderr, in a program that closed its own: what it prints would land in the file.
int above_standard_streams(int number) noexcept {
  if (number < 0 || number > STDERR_FILENO) return number;
  const int moved = fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(number);
  errno = error;
  return moved;
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

}  // namespace polypath
