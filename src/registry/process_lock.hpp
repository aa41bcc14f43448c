// How a process shows that it lives: it holds a POSIX lock on the first byte of its file. The kernel drops
// the lock when the process ends, however it ends, and a forked child does not inherit it.
//
// The kernel also drops it when the process closes *any* descriptor of the file. So no process may open its
// own file a second time; names of files begin with their owner's process id to tell (file_name.hpp).
#pragma once

#include <fcntl.h>

namespace polypath {

inline struct flock first_byte(short type) noexcept {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

/// Takes the lock for this process's life. `descriptor` is open for writing. False: another process has it.
inline bool lock_for_life(int descriptor) noexcept {
  struct flock lock = first_byte(F_WRLCK);
  return fcntl(descriptor, F_SETLK, &lock) == 0;
}

/// Whether a process other than this one holds the lock.
inline bool owner_lives(int descriptor) noexcept {
  struct flock lock = first_byte(F_RDLCK);
  return fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace polypath
