#include "peer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>

extern char** environ;

namespace polypath::sim::test {

Peer::Peer() {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::string program = POLYPATH_SIM_PEER;
  const std::array<char*, 2> arguments{program.data(), nullptr};
  const int failed =
      posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (failed != 0) throw std::runtime_error("cannot start " + program);
}

Peer::~Peer() {
  close(to_);
  close(from_);
  if (pid_ != 0) waitpid(pid_, nullptr, 0);
}

CUipcMemHandle Peer::allocate(int gpu, std::size_t bytes, std::uint8_t seed) {
  return to_handle(ask(fmt::format("allocate {} {} {}", gpu, bytes, seed)));
}

void Peer::free() {
  if (ask("free") != "ok") throw std::runtime_error("the other process cannot free its memory");
}

bool Peer::holds(std::uint8_t seed) { return ask(fmt::format("holds {}", seed)) == "yes"; }

std::string Peer::exchange(const CUipcMemHandle& handle, int gpu, std::size_t bytes,
                           std::uint8_t expected, std::uint8_t seed) {
  return ask(fmt::format("exchange {} {} {} {} {}", to_text(handle), gpu, bytes, expected, seed));
}

void Peer::kill() {
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

std::string Peer::ask(const std::string& command) {
  const std::string line = command + "\n";
  if (write(to_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw std::runtime_error("the other process does not listen");
  std::string answer;
  for (char next = 0; read(from_, &next, 1) == 1; answer += next)
    if (next == '\n') return answer;
  throw std::runtime_error("the other process has died");
}

}  // namespace polypath::sim::test
