#include "system_calls.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdarg>

namespace polypath::test {

SystemCalls& system_calls() {
  static SystemCalls calls;
  return calls;
}

std::atomic<bool>& no_room() {
  static std::atomic<bool> set{false};
  return set;
}

std::atomic<int>& openings_left() {
  static std::atomic<int> count{-1};
  return count;
}

std::function<void()>& before_lock() {
  static std::function<void()> call;
  return call;
}

std::function<void()>& before_lstat() {
  static std::function<void()> call;
  return call;
}

}  // namespace polypath::test

using polypath::test::before_lock;
using polypath::test::before_lstat;
using polypath::test::no_room;
using polypath::test::openings_left;
using polypath::test::system_calls;

extern "C" {

// Functions to be called before are copied first: they may set others.

int __real_openat(int folder, const char* path, int flags, ...);
int __real_lstat(const char* path, struct stat* status);
int __real_fstat(int descriptor, struct stat* status);
ssize_t __real_pread(int descriptor, void* to, size_t bytes, off_t offset);
ssize_t __real_pwrite(int descriptor, const void* from, size_t bytes, off_t offset);
int __real_fcntl(int descriptor, int command, ...);

int __wrap_openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  ++system_calls().openat;
  if (openings_left() == 0) {
    errno = EMFILE;
    return -1;
  }
  if (openings_left() > 0) --openings_left();
  return __real_openat(folder, path, flags, mode);
}

int __wrap_lstat(const char* path, struct stat* status) {
  ++system_calls().lstat;
  if (const auto call = before_lstat()) call();
  return __real_lstat(path, status);
}

int __wrap_fstat(int descriptor, struct stat* status) {
  ++system_calls().fstat;
  return __real_fstat(descriptor, status);
}

ssize_t __wrap_pread(int descriptor, void* to, size_t bytes, off_t offset) {
  ++system_calls().pread;
  return __real_pread(descriptor, to, bytes, offset);
}

ssize_t __wrap_pwrite(int descriptor, const void* from, size_t bytes, off_t offset) {
  ++system_calls().pwrite;
  if (no_room()) {
    errno = ENOSPC;
    return -1;
  }
  return __real_pwrite(descriptor, from, bytes, offset);
}

int __wrap_fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  ++system_calls().fcntl;
  if (const auto call = before_lock(); command == F_SETLK && call) call();
  return __real_fcntl(descriptor, command, argument);
}

}  // extern "C"
