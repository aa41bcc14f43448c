// The threads that copy pageable memory: sharing work, signals, forks, and idleness.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "exec/copy_threads.hpp"

namespace polypath::test {
namespace {

/// Pieces that are counted, each with its thread.
class Pieces : public SharedWork {
 public:
  explicit Pieces(std::size_t count) : done_(count) {}
  bool step(int thread, int seat) noexcept override {
    const std::size_t piece = next_++;
    if (piece >= done_.size()) return false;
    ++done_[piece];
    if (thread < 0 || thread > 4 || seat < 0 || seat >= 2) is_wrong_ = true;
    return true;
  }
  [[nodiscard]] bool is_done_once() const {
    for (const auto& count : done_)
      if (count != 1) return false;
    return !is_wrong_;
  }

 private:
  std::atomic<std::size_t> next_{0};
  std::vector<std::atomic<int>> done_;
  std::atomic<bool> is_wrong_{false};
};

TEST(CopyThreads, Run_DoesEachPieceOnce) {
  CopyThreads threads(4);
  EXPECT_FALSE(threads.is_running()) << "made when needed";
  for (const std::size_t count : {0, 1, 2, 1000}) {
    Pieces pieces(count);
    EXPECT_TRUE(threads.run(pieces, 2));
    EXPECT_TRUE(pieces.is_done_once()) << count;
  }
  EXPECT_TRUE(threads.is_running());
}

/// Ends only when the other one has begun.
struct Mutual : SharedWork {
  std::atomic<bool> has_begun{false};
  Mutual* other = nullptr;
  bool step(int, int) noexcept override {
    has_begun = true;
    std::this_thread::yield();
    return !other->has_begun;
  }
};

TEST(CopyThreads, TwoCallers_TakeTurns) {
  CopyThreads threads(1);
  Mutual first;
  Mutual two;
  first.other = &two;
  two.other = &first;
  std::thread second([&] { EXPECT_TRUE(threads.run(two, 1)); });
  EXPECT_TRUE(threads.run(first, 1));
  second.join();
}

TEST(CopyThreads, ManyCallers_AllEnd) {
  CopyThreads threads(4);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        Pieces pieces(7);
        if (!threads.run(pieces, 2) || !pieces.is_done_once()) ++wrong;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CopyThreads, Threads_BlockSignalsOfTheProgram) {
  static constexpr int kThreads = 2;
  struct Mask : SharedWork {
    sigset_t blocked{};
    std::atomic<bool> is_known{false};
    bool step(int thread, int) noexcept override {
      if (thread == kThreads) return !is_known;  // the caller's
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      is_known = true;
      return false;
    }
  };
  CopyThreads threads(kThreads);
  Mask mask;
  ASSERT_TRUE(threads.run(mask, 2));
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD})
    EXPECT_EQ(sigismember(&mask.blocked, signal), 1) << signal;
  for (const int signal : {SIGSEGV, SIGBUS})
    EXPECT_EQ(sigismember(&mask.blocked, signal), 0) << "else the kernel ends the process";
}

TEST(CopyThreads, Caller_TakesPart) {
  struct Callers : SharedWork {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> took_part{false};
    bool step(int thread, int) noexcept override {
      const bool is_caller = std::this_thread::get_id() == caller;
      if (is_caller != (thread == 3)) std::abort();
      if (is_caller) took_part = true;
      std::this_thread::yield();
      return !took_part;
    }
  };
  CopyThreads threads(3);
  for (const int seats : {1, 3}) {
    Callers work;
    ASSERT_TRUE(threads.run(work, seats));
    EXPECT_TRUE(work.took_part) << "which needs no thread to wake";
  }
}

TEST(CopyThreads, ForkedChild_RunsNothing) {
  CopyThreads threads(2);
  Pieces pieces(10);
  ASSERT_TRUE(threads.run(pieces, 2));
  const pid_t child = fork();
  if (child == 0) {
    Pieces none(3);
    const bool is_refused = !threads.is_running() && !threads.run(none, 2);
    _exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  Pieces more(10);
  EXPECT_TRUE(threads.run(more, 2)) << "the parent has its threads still";
}

/// The states of the other threads of this process, as /proc has them.
std::set<char> states_of_others() {
  std::set<char> states;
  const std::string own = std::to_string(gettid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == own) continue;
    std::ifstream file(task.path() / "stat");
    std::string text;
    std::getline(file, text);
    if (const auto end = text.rfind(')'); end != std::string::npos && end + 2 < text.size())
      states.insert(text[end + 2]);
  }
  return states;
}

TEST(CopyThreads, IdleThreads_Sleep) {
  CopyThreads threads(3);
  Pieces pieces(100);
  ASSERT_TRUE(threads.run(pieces, 2));
  while (states_of_others() != std::set<char>{'S'}) std::this_thread::yield();
}

}  // namespace
}  // namespace polypath::test
