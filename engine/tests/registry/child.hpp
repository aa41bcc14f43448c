// A forked process that does its part in step with the test.
#pragma once

#include <sys/types.h>

#include <functional>

namespace polypath::test {

/// What `body` of a Child has in hand.
class Steps {
 public:
  explicit Steps(int socket) : socket_(socket) {}
  /// Tells the test that a step is done.
  void done() const;
  /// Waits until the test says go(). False: it never will.
  [[nodiscard]] bool wait() const;
  /// done(), then wait().
  [[nodiscard]] bool meet() const;
  [[nodiscard]] int socket() const { return socket_; }

 private:
  int socket_;
};

class Child {
 public:
  /// The child ends with what `body` returns, by _exit(); with `by_exit`, by exit().
  explicit Child(const std::function<int(const Steps&)>& body, bool by_exit = false);
  /// Kills it if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits for the child's done(). False: it ended before.
  [[nodiscard]] bool wait() const { return steps_.wait(); }
  void go() const { steps_.done(); }
  /// SIGKILL, and waits until it is gone.
  void kill();
  /// Waits for its end; its exit code, or minus the signal that killed it.
  int result();

 private:
  Steps steps_{-1};
  pid_t pid_ = 0;
  int result_ = 0;
};

}  // namespace polypath::test
