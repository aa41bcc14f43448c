// What the engine is told of memory that processes share. The exporting process is a child, forked
// before either has used CUDA; both run under the shim, each with a fake engine of its own. Each
// test has a process of its own (CMakeLists.txt).
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "driver_forms.hpp"
#include "shim_test.hpp"

#undef cuIpcOpenMemHandle
extern "C" CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags);

namespace polypath::preload::test {
namespace {

constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

/// Makes memory and its handle, and keeps it until told to go. Ends with what its engine was not
/// told.
int export_memory(int to, int until) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUipcMemHandle handle{};
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 1) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&memory, kLarge) != CUDA_SUCCESS ||
      cuMemsetD8Async(memory, 0x5A, kLarge, nullptr) != CUDA_SUCCESS ||
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

class Imports : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(0, pipe(handles_.data()));
    ASSERT_EQ(0, pipe(ends_.data()));
    exporter_ = fork();
    if (exporter_ == 0) {
      close(ends_[1]);  // so that it ends with this process, in any case
      _exit(export_memory(handles_[1], ends_[0]));
    }
    close(handles_[1]);
    ASSERT_EQ(ssize_t{sizeof handle}, read(handles_[0], &handle, sizeof handle));
    ASSERT_CUDA(cuInit(0));
    ASSERT_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    ASSERT_CUDA(cuCtxSetCurrent(context));
    ASSERT_CUDA(cuMemAlloc(&own, kLarge));
  }
  void TearDown() override {
    EXPECT_EQ(1, write(ends_[1], "x", 1));
    int status = 0;
    waitpid(exporter_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(0, WEXITSTATUS(status)) << "what the exporter found (export_memory)";
  }

  CUdeviceptr open_import() {
    CUdeviceptr memory = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuIpcOpenMemHandle_v2(&memory, handle, kLazy));
    return memory;
  }
  /// What was told of the address, in this test's context.
  [[nodiscard]] FakeEngine::Import import_of(const char* what, CUdeviceptr address) const {
    return {what, std::bit_cast<const void*>(address), context};
  }
  /// Copies the exporter's bytes to this process's own memory. Whether that was offered to the
  /// engine.
  bool is_offered(CUdeviceptr memory) {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemsetD8Async(own, 0xEE, kLarge, nullptr));
    engine.copies.clear();
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoDAsync(own, memory, kLarge, nullptr));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    std::vector<std::uint8_t> values(kLarge);
    EXPECT_EQ(0, polypath_sim_peek(own, values.data(), kLarge));
    EXPECT_EQ(std::vector<std::uint8_t>(kLarge, 0x5A), values);
    return !engine.copies.empty();
  }

  FakeEngine& engine = fake_engine();
  CUipcMemHandle handle{};
  CUcontext context = nullptr;
  CUdeviceptr own = 0;

 private:
  std::array<int, 2> handles_{};
  std::array<int, 2> ends_{};
  pid_t exporter_ = -1;
};

TEST_F(Imports, ImportsAndClosesReachTheEngine) {
  CUdeviceptr memory = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&memory, handle, 77));
  EXPECT_EQ(0, engine.created);
  const auto before = polypath_sim_live_allocations();
  for (auto* const open : {&cuIpcOpenMemHandle_v2, &cuIpcOpenMemHandle}) {
    engine.imported.clear();
    std::vector<std::uint64_t> live;
    engine.during_import = [&](const std::string&) {
      live.push_back(polypath_sim_live_allocations());
    };
    EXPECT_CUDA(CUDA_SUCCESS, open(&memory, handle, kLazy));
    EXPECT_EQ(1, engine.created);
    EXPECT_TRUE(is_offered(memory));
    EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
    EXPECT_EQ((std::vector{import_of("imported", memory), import_of("closed", memory)}),
              engine.imported);
    EXPECT_EQ((std::vector<std::uint64_t>{before + 1, before + 1}), live)
        << "told before it is closed";
    EXPECT_EQ(before, polypath_sim_live_allocations());
  }
  engine.during_import = [](const std::string&) {};
  engine.imports.clear();
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
  EXPECT_TRUE(engine.imports.empty()) << "nothing is closed";
}

// One thread makes the engine; what others export, open and close meanwhile does not wait for that,
// and is registered before any other thread sees the engine.
TEST_F(Imports, ImportsDuringStart_ReachTheEngineLater) {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CUdeviceptr memory = 0;
  ASSERT_CUDA(cuMemAlloc(&first, kLarge));
  ASSERT_CUDA(cuMemAlloc(&second, kLarge));
  engine.during_create = [&] {
    std::thread([&] {
      CUipcMemHandle unused{};
      EXPECT_CUDA(CUDA_SUCCESS, cuCtxSetCurrent(context));
      EXPECT_CUDA(CUDA_SUCCESS, cuIpcGetMemHandle(&unused, first));
      memory = open_import();
      EXPECT_EQ(memory, open_import());
      EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
      EXPECT_CUDA(CUDA_SUCCESS, cuIpcGetMemHandle(&unused, second));
      EXPECT_FALSE(is_offered(memory));
    }).join();
    EXPECT_TRUE(engine.imports.empty());
  };
  // By another context than theirs.
  CUcontext other = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&other, 2));
  ASSERT_CUDA(cuCtxSetCurrent(other));
  CUdeviceptr there = 0;
  ASSERT_CUDA(cuMemAlloc(&there, kLarge));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyHtoD(there, std::vector<char>(kLarge).data(), kLarge));
  CUcontext current = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxGetCurrent(&current));
  EXPECT_EQ(other, current);
  EXPECT_EQ((std::vector{import_of("exported", first), import_of("imported", memory),
                         import_of("exported", second)}),
            engine.imported);
  ASSERT_CUDA(cuCtxSetCurrent(context));
  EXPECT_TRUE(is_offered(memory));
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
  EXPECT_EQ(import_of("closed", memory), engine.imported.back());
  EXPECT_EQ(4U, engine.imported.size());
}

// What the engine cannot keep is no concern of the program; but it would take it for this GPU's
// memory.
TEST_F(Imports, UnknownImports_GoToTheDriver) {
  engine.import_status = POLYPATH_INTERNAL_ERROR;
  const CUdeviceptr memory = open_import();
  EXPECT_FALSE(is_offered(memory));
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
  EXPECT_EQ(std::vector{import_of("imported", memory)}, engine.imported)
      << "it knows of nothing to close";
  engine.import_status = POLYPATH_SUCCESS;
  const CUdeviceptr again = open_import();
  EXPECT_TRUE(is_offered(again));
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(again));
}

TEST_F(Imports, FailedClose_KeepsTheImport) {
  const CUdeviceptr memory = open_import();
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  ASSERT_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuIpcCloseMemHandle(memory));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  EXPECT_EQ((std::vector{import_of("imported", memory), import_of("closed", memory),
                         import_of("imported", memory)}),
            engine.imported);
  EXPECT_TRUE(is_offered(memory));
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
  EXPECT_EQ(4U, engine.imported.size());
}

// The memory of the GPU that is reset is gone, that of others is as it was.
TEST_F(Imports, Reset_PassesImportsToNewEngine) {
  const CUdeviceptr memory = open_import();
  CUcontext other = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&other, 1));
  ASSERT_CUDA(cuCtxSetCurrent(other));
  open_import();
  ASSERT_CUDA(cuCtxSetCurrent(context));
  engine.imported.clear();
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxReset(1));
  EXPECT_TRUE(engine.imported.empty());
  EXPECT_FALSE(engine.is_alive);
  EXPECT_TRUE(is_offered(memory));
  EXPECT_EQ(std::vector{import_of("imported", memory)}, engine.imported);
  EXPECT_EQ(2, engine.created);
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(memory));
}

}  // namespace
}  // namespace polypath::preload::test
