// A forked child of a test.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace polypath::test {

/// Whether a child may allocate when threads of its parent may have been allocating. The allocators
/// of sanitizers have locks, and a child keeps those that were held when it was forked.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kChildMayAllocate = false;
#else
inline constexpr bool kChildMayAllocate = true;
#endif

/// What `body` returns, an exit code, in a child of this process; -1 when the child died.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace polypath::test
