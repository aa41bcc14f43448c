#include "child.hpp"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace polypath::test {

void Steps::done() const {
  // One that is not there any more is noticed by the next wait().
  send(socket_, "!", 1, MSG_NOSIGNAL);
}

bool Steps::wait() const {
  char byte = 0;
  return recv(socket_, &byte, 1, 0) == 1;
}

bool Steps::meet() const {
  done();
  return wait();
}

Child::Child(const std::function<int(const Steps&)>& body, bool by_exit) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::runtime_error("no socket");
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no child");
  if (pid_ == 0) {
    close(ends[0]);
    const int result = body(Steps(ends[1]));
    if (by_exit) std::exit(result);
    _exit(result);
  }
  close(ends[1]);
  steps_ = Steps(ends[0]);
}

Child::~Child() {
  kill();
  close(steps_.socket());
}

void Child::kill() {
  if (pid_ != 0) ::kill(pid_, SIGKILL);
  result();
}

int Child::result() {
  if (pid_ == 0) return result_;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  result_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result_;
}

}  // namespace polypath::test
