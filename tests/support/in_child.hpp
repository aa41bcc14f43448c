// A forked child of a test.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace polypath::test {

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
