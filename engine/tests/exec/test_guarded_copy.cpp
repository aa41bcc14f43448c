// Copies whose memory goes away meanwhile: they say so, and the program's signals stay its own.
#include <gtest/gtest.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "exec/guarded_copy.hpp"

namespace polypath::test {
namespace {

constexpr std::size_t kPage = 4096;

std::vector<std::byte> random_memory(std::size_t bytes) {
  std::mt19937_64 random(bytes + 1);
  std::vector<std::byte> memory(bytes);
  std::ranges::generate(memory, [&] { return static_cast<std::byte>(random()); });
  return memory;
}

TEST(GuardedCopy, AnyAlignment_CopiesEveryByte) {
  const FaultGuard guard;
  const auto from = random_memory(1000);
  for (const Stores stores : {Stores::cached, Stores::streaming})
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 200, 900})
      for (const std::size_t offset : {0, 1, 31, 63}) {
        std::vector<std::byte> to(1100, std::byte{0xA5});
        ASSERT_TRUE(copy_guarded(to.data() + offset, from.data() + 7, bytes, stores));
        EXPECT_EQ(std::memcmp(to.data() + offset, from.data() + 7, bytes), 0);
        const auto is_poison = [](std::byte byte) { return byte == std::byte{0xA5}; };
        EXPECT_TRUE(
            std::all_of(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(offset), is_poison));
        EXPECT_TRUE(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(offset + bytes), to.end(),
                                is_poison));
      }
}

/// Two pages of a file, which is cut to one.
class CutFile {
 public:
  explicit CutFile(int protection) {
    const int file = memfd_create("polypath-test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file, 2 * kPage), 0);
    pages_ = static_cast<std::byte*>(mmap(nullptr, 2 * kPage, protection, MAP_SHARED, file, 0));
    EXPECT_EQ(ftruncate(file, kPage), 0);
    close(file);
  }
  ~CutFile() { munmap(pages_, 2 * kPage); }
  CutFile(const CutFile&) = delete;
  CutFile& operator=(const CutFile&) = delete;
  [[nodiscard]] std::byte* pages() const { return pages_; }

 private:
  std::byte* pages_ = nullptr;
};

TEST(GuardedCopy, TruncatedFile_IsNoSignal) {
  const FaultGuard guard;
  const CutFile source(PROT_READ);
  const CutFile destination(PROT_READ | PROT_WRITE);
  std::vector<std::byte> memory(2 * kPage);
  for (const Stores stores : {Stores::cached, Stores::streaming}) {
    EXPECT_FALSE(copy_guarded(memory.data(), source.pages(), 2 * kPage, stores));
    EXPECT_FALSE(copy_guarded(destination.pages(), memory.data(), 2 * kPage, stores));
    EXPECT_TRUE(copy_guarded(memory.data(), source.pages(), kPage, stores)) << "the page there is";
  }
}

TEST(GuardedCopy, UnmappedOrReadOnly_IsNoSignal) {
  const FaultGuard guard;
  auto* const pages = static_cast<std::byte*>(
      mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<std::byte> memory(kPage);
  EXPECT_FALSE(copy_guarded(pages, memory.data(), kPage, Stores::streaming)) << "read-only";
  munmap(pages, 2 * kPage);
  EXPECT_FALSE(copy_guarded(memory.data(), pages, kPage, Stores::cached));
}

/// How a child ends that runs this.
int status_of_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

void* closed_page() {
  static void* const page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page;
}

void touch_closed_page() { *static_cast<volatile char*>(closed_page()) = 1; }

TEST(GuardedCopy, FaultElsewhere_IsTheProgramsOwn) {
  const int standard = status_of_child([] {
    signal(SIGSEGV, SIG_DFL);
    const FaultGuard guard;
    touch_closed_page();
  });
  EXPECT_TRUE(WIFSIGNALED(standard));
  EXPECT_EQ(WTERMSIG(standard), SIGSEGV);
  const int handled = status_of_child([] {
    struct sigaction action{};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      _exit(info->si_addr == closed_page() ? 7 : 8);
    };
    sigaction(SIGSEGV, &action, nullptr);
    const FaultGuard guard;
    touch_closed_page();
  });
  EXPECT_EQ(WEXITSTATUS(handled), 7);
  const int sent = status_of_child([] {
    struct sigaction action{};
    action.sa_handler = [](int) { _exit(9); };
    sigaction(SIGBUS, &action, nullptr);
    const FaultGuard guard;
    raise(SIGBUS);
  });
  EXPECT_EQ(WEXITSTATUS(sent), 9);
}

TEST(GuardedCopy, ManyGuards_TakeNoMemory) {
  const auto round = [] {
    for (const auto handler : {SIG_DFL, SIG_IGN}) {
      signal(SIGBUS, handler);
      const FaultGuard guard;
    }
  };
  round();
  const std::size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 1000; ++i) round();
  EXPECT_LT(mallinfo2().uordblks, before + 4096);
  signal(SIGBUS, SIG_DFL);
}

TEST(GuardedCopy, Handlers_ArePutBack) {
  struct sigaction own{};
  struct sigaction before{};
  own.sa_handler = [](int) {};
  own.sa_flags = SA_RESTART;
  sigaction(SIGBUS, &own, &before);
  const auto handler = [] {
    struct sigaction now{};
    sigaction(SIGBUS, nullptr, &now);
    return now.sa_handler;
  };
  {
    const FaultGuard outer;
    {
      const FaultGuard inner;
    }
    EXPECT_NE(handler(), own.sa_handler);
  }
  EXPECT_EQ(handler(), own.sa_handler);
  struct sigaction later{};
  later.sa_handler = [](int) { _exit(1); };
  {
    const FaultGuard guard;
    sigaction(SIGBUS, &later, nullptr);
  }
  EXPECT_EQ(handler(), later.sa_handler) << "what the program sets meanwhile stays";
  sigaction(SIGBUS, &before, nullptr);
}

}  // namespace
}  // namespace polypath::test
