// What the engine is told of memory that processes share. The exporting process is a child, forked before either has
// used CUDA; both run under the shim, each with a fake engine of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "driver_forms.hpp"
#include "shim_test.hpp"

#undef cuIpcOpenMemHandle
extern "C" CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags);

namespace polypath::preload::test {
namespace {

constexpr std::size_t kBytes = kMiB;

/// Makes memory and its handle, and keeps it until told to go. Ends with what its engine was not told.
int export_memory(int to, int until) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUipcMemHandle handle{};
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 1) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&memory, kBytes) != CUDA_SUCCESS ||
      cuMemsetD8Async(memory, 0x5A, kBytes, nullptr) != CUDA_SUCCESS ||
      cuCtxSynchronize() != CUDA_SUCCESS || cuIpcGetMemHandle(&handle, memory) != CUDA_SUCCESS)
    return 1;
  if (cuIpcGetMemHandle(&handle, 0x1000) != CUDA_ERROR_INVALID_VALUE ||
      cuIpcGetMemHandle(&handle, memory) != CUDA_SUCCESS)
    return 2;
  const std::vector<std::string> expected{"exported", "exported"};
  if (fake_engine().created != 1 || fake_engine().imports != expected) return 3;
  char end = 0;
  return write(to, &handle, sizeof handle) == sizeof handle && read(until, &end, 1) == 1 ? 0 : 4;
}

TEST(Imports, AreToldToTheEngine) {
  std::array<int, 2> handles{};
  std::array<int, 2> ends{};
  ASSERT_EQ(0, pipe(handles.data()));
  ASSERT_EQ(0, pipe(ends.data()));
  const pid_t exporter = fork();
  if (exporter == 0) {
    close(ends[1]);  // so that it ends with this process, whatever happens here
    _exit(export_memory(handles[1], ends[0]));
  }
  close(handles[1]);

  FakeEngine& engine = fake_engine();
  CUipcMemHandle handle{};
  ASSERT_EQ(ssize_t{sizeof handle}, read(handles[0], &handle, sizeof handle));
  CUcontext context = nullptr;
  ASSERT_CUDA(cuInit(0));
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
  ASSERT_CUDA(cuCtxSetCurrent(context));

  constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  CUdeviceptr memory = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&memory, handle, 77));
  EXPECT_EQ(0, engine.created);
  for (auto* const open : {&cuIpcOpenMemHandle_v2, &cuIpcOpenMemHandle}) {
    engine.imports.clear();
    std::vector<std::uint64_t> live;
    engine.during_import = [&](const std::string&) {
      live.push_back(polypath_sim_live_allocations());
    };
    EXPECT_CUDA(CUDA_SUCCESS, open(&memory, handle, kLazy));
    EXPECT_EQ(1, engine.created);
    EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
    EXPECT_EQ((std::vector<std::string>{"imported", "closed"}), engine.imports);
    EXPECT_EQ((std::vector<std::uint64_t>{1, 1}), live) << "told before it is closed";
    EXPECT_EQ(0U, polypath_sim_live_allocations());
  }
  engine.during_import = [](const std::string&) {};
  // What the engine cannot keep is no concern of the program.
  engine.import_status = POLYPATH_INTERNAL_ERROR;
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcOpenMemHandle_v2(&memory, handle, kLazy));
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));

  EXPECT_EQ(1, write(ends[1], "x", 1));
  int status = 0;
  waitpid(exporter, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status)) << "what the exporter found (export_memory)";
}

}  // namespace
}  // namespace polypath::preload::test
