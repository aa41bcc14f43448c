#include "run_program.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace polypath::preload::test {
namespace {

struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  std::array<int, 2> ends{};
};

std::string read_all(int file) {
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t got = 0; (got = read(file, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  close(file);
  return text;
}

}  // namespace

Outcome run(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const Pipe out;
  const Pipe error;
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("no process");
  if (pid == 0) {
    dup2(out.ends[1], STDOUT_FILENO);
    dup2(error.ends[1], STDERR_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(out.ends[1]);
  close(error.ends[1]);
  Outcome outcome{0, pid, {}, {}};
  std::thread errors([&] { outcome.error = read_all(error.ends[0]); });
  outcome.out = read_all(out.ends[0]);
  errors.join();
  int status = 0;
  waitpid(pid, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace polypath::preload::test
