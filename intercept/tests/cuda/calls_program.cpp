// calls_program SMALL LARGE HOW: an ordinary CUDA program. Copies that many small (1000 bytes) and
// large (4 MiB) pieces of pinned memory to a GPU, and ends with status 7 in the way that HOW says.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr std::size_t kSmall = 1000;
constexpr std::size_t kLarge = 4 << 20;

void check(CUresult result) {
  if (result != CUDA_SUCCESS) std::_Exit(1);
}

struct Memory {
  CUdeviceptr device = 0;
  void* host = nullptr;
};

Memory prepare() {
  Memory memory;
  CUcontext context = nullptr;
  check(cuInit(0));
  check(cuDevicePrimaryCtxRetain(&context, 0));
  check(cuCtxSetCurrent(context));
  check(cuMemAlloc(&memory.device, kLarge));
  check(cuMemHostAlloc(&memory.host, kLarge, 0));
  return memory;
}

void copy(const Memory& memory, int times, std::size_t bytes) {
  for (int i = 0; i < times; ++i) check(cuMemcpyHtoD(memory.device, memory.host, bytes));
}

/// Makes it a pipe without a reader.
void break_stderr() {
  int ends[2];
  if (pipe(ends) != 0) std::_Exit(3);
  close(ends[0]);
  dup2(ends[1], STDERR_FILENO);
}

/// Goes on in a child, and ends with its status.
bool is_child() {
  const pid_t pid = fork();
  if (pid == 0) return true;
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) std::_Exit(2);
  return false;
}

}  // namespace

int main(int, char** arguments) {
  const int small = std::atoi(arguments[1]);
  const int large = std::atoi(arguments[2]);
  const std::string how = arguments[3];
  if (how == "before-fork") is_child();  // both go on, each with CUDA of its own
  if (how == "without-cuda") return 7;
  const Memory memory = prepare();
  copy(memory, small, kSmall);
  copy(memory, large, kLarge);
  if (how == "reset") {
    check(cuDevicePrimaryCtxReset(0));
    return 7;
  }
  if (how == "fork" && is_child()) return 7;
  if (how == "call-after-fork" && is_child()) {
    // CUDA does not work here, and says so.
    return cuMemcpyHtoD(memory.device, memory.host, kLarge) == CUDA_SUCCESS ? 1 : 7;
  }
  if (how == "exit-in-thread") std::thread([] { std::exit(7); }).join();
  if (how == "closed-stderr") close(STDERR_FILENO);
  if (how == "broken-stderr") break_stderr();
  return 7;
}
