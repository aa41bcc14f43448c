#include "process_group.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <utility>

#include "comm/socket_bootstrap.hpp"

extern char** environ;

namespace polypath::test {
namespace {

// Files of a rank's process.
constexpr int kFromTest = 100;
constexpr int kToTest = 101;
constexpr int kListening = 102;

constexpr std::chrono::milliseconds kLimit = std::chrono::minutes(5);

std::map<std::string, RankProgram>& programs() {
  static std::map<std::string, RankProgram> all;
  return all;
}

int the_port = 0;

void tell(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(kToTest, text.data(), text.size()) != static_cast<ssize_t>(text.size())) ::_exit(3);
}

std::string one_line(std::string text) {
  for (char& each : text)
    if (each == '\n') each = ' ';
  return text;
}

/// `NAME RANK SIZE PORT` after --rank-program.
int run_rank(char** arguments) {
  try {
    the_port = std::stoi(arguments[3]);
    programs().at(arguments[0])(RankProcess(std::stoi(arguments[1]), std::stoi(arguments[2])));
    tell(testing::Test::HasFailure() ? "failed what it expected is printed above" : "done");
  } catch (const std::exception& error) {
    tell("failed " + one_line(error.what()));
  }
  return 0;
}

struct Listening {
  Listening() {
    file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    if (file < 0 || ::bind(file, reinterpret_cast<sockaddr*>(&at), bytes) != 0 ||
        ::listen(file, 64) != 0 ||
        ::getsockname(file, reinterpret_cast<sockaddr*>(&at), &bytes) != 0)
      throw std::runtime_error("no socket to listen at");
    port = ntohs(at.sin_port);
  }
  ~Listening() { ::close(file); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  int file = -1;
  int port = 0;
};

}  // namespace

// ---- a rank -----------------------------------------------------------------

bool add_rank_program(const char* name, RankProgram program) {
  return programs().emplace(name, program).second;
}

RankProcess::RankProcess(int rank, int size) : rank_(rank), size_(size) {}

CommunicatorOptions RankProcess::options() const {
  Rendezvous rendezvous{rank_, size_, "127.0.0.1", the_port, rank_ == 0 ? kListening : -1, ""};
  CommunicatorOptions options;
  options.rank = rank_;
  options.size = size_;
  options.gpu = rank_;
  options.exchange = socket_exchange(rendezvous, kLimit);
  options.time_limit = kLimit;
  return options;
}

std::unique_ptr<Communicator> RankProcess::create(std::shared_ptr<const CudaDriver> driver) const {
  return std::make_unique<Communicator>(driver == nullptr ? source().driver : std::move(driver),
                                        source().node, options());
}

void RankProcess::reached(const std::string& stage) const {
  tell("reached " + stage);
  char word = 0;
  if (::read(kFromTest, &word, 1) != 1) ::_exit(3);  // the test is gone
}

bool RankProcess::ends_at(const std::string& stage) {
  const char* const requested = std::getenv("POLYPATH_TEST_STAGE");
  return requested != nullptr && stage == requested;
}

void RankProcess::at(const std::string& stage) const {
  if (rank_ == 1 && ends_at(stage)) reached("its end");
}

void RankProcess::all_at(const std::string& stage) const {
  at(stage);
  if (rank_ != 1 && ends_at(stage)) reached(stage);
}

// ---- the test ---------------------------------------------------------------

ProcessGroup::ProcessGroup(const std::string& name, int size) {
  const Listening listening;
  // Its own name, by which the program finds what lies next to it.
  const std::string program = std::filesystem::canonical("/proc/self/exe").string();
  for (int rank = 0; rank < size; ++rank) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], kFromTest);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], kToTest);
    if (rank == 0) ::posix_spawn_file_actions_adddup2(&actions, listening.file, kListening);
    std::array<std::string, 6> words{program,
                                     "--rank-program",
                                     name,
                                     std::to_string(rank),
                                     std::to_string(size),
                                     std::to_string(listening.port)};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    Child child;
    const int failed =
        ::posix_spawn(&child.pid, program.c_str(), &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    child.to = in[1];
    child.from = out[0];
    children_.push_back(child);
    if (failed != 0) throw std::runtime_error("no process");
  }
}

ProcessGroup::~ProcessGroup() {
  for (Child& child : children_) {
    if (child.pid != 0) {
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
    ::close(child.to);
    ::close(child.from);
  }
}

bool ProcessGroup::read_line(Child& child, std::string& line) {
  std::size_t end = 0;
  while ((end = child.text.find('\n')) == std::string::npos) {
    std::array<char, 1024> more{};
    const ssize_t count = ::read(child.from, more.data(), more.size());
    if (count <= 0) return false;
    child.text.append(more.data(), static_cast<std::size_t>(count));
  }
  line = child.text.substr(0, end);
  child.text.erase(0, end + 1);
  return true;
}

void ProcessGroup::wait_for(int rank, const std::string& stage) {
  std::string line;
  if (!read_line(child(rank), line)) line = "nothing";
  if (line != "reached " + stage)
    throw std::runtime_error(
        fmt::format("rank {} was to reach '{}', and said: {}", rank, stage, line));
}

void ProcessGroup::go(int rank) {
  if (::write(child(rank).to, "g", 1) != 1) throw std::runtime_error("the rank does not listen");
}

void ProcessGroup::pass(const std::string& stage) {
  for (int rank = 0; rank < static_cast<int>(children_.size()); ++rank) wait_for(rank, stage);
  for (int rank = 0; rank < static_cast<int>(children_.size()); ++rank) go(rank);
}

void ProcessGroup::kill(int rank) {
  ::kill(child(rank).pid, SIGKILL);
  ::waitpid(child(rank).pid, nullptr, 0);
  child(rank).pid = 0;
}

std::string ProcessGroup::result(int rank) {
  std::string message;
  std::string line;
  while (read_line(child(rank), line)) message = line;
  int status = 0;
  ::waitpid(child(rank).pid, &status, 0);
  child(rank).pid = 0;
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return fmt::format("ended with {}", WEXITSTATUS(status));
  return message == "done" ? "" : message;
}

void expect_all_well(const std::string& name, int size) {
  ProcessGroup group(name, size);
  expect_all_well(group, size);
}

void expect_all_well(ProcessGroup& group, int size) {
  for (int rank = 0; rank < size; ++rank) EXPECT_EQ("", group.result(rank)) << "rank " << rank;
}

std::vector<std::string> results_of_kill(const std::string& name, int size,
                                         const std::string& stage, const std::vector<int>& held) {
  ::setenv("POLYPATH_TEST_STAGE", stage.c_str(), 1);
  ProcessGroup group(name, size);
  for (const int rank : held) group.wait_for(rank, stage);
  group.wait_for(1, "its end");
  group.kill(1);
  for (const int rank : held) group.go(rank);
  std::vector<std::string> results(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    if (rank != 1) results[static_cast<std::size_t>(rank)] = group.result(rank);
  return results;
}

std::string as_name(std::string text) {
  std::ranges::replace_if(text, [](unsigned char each) { return std::isalnum(each) == 0; }, '_');
  return text;
}

}  // namespace polypath::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 6 && std::string_view(argv[1]) == "--rank-program")
    return polypath::test::run_rank(argv + 2);
  return RUN_ALL_TESTS();
}
