// What the environment makes of the driver: GPUs for one process at a time, with little free
// memory; functions that are not there. CMakeLists.txt sets the variables.
#include <dlfcn.h>
#include <nvml.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "fixture.hpp"
#include "own_machine.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kFree = kGiB;  // POLYPATH_SIM_MEMORY

// Before cuInit: another run of this test at the same time is on another machine.
[[maybe_unused]] const std::string machine = own_machine();

CUresult retain(int gpu) {
  CUcontext context = nullptr;
  return cuDevicePrimaryCtxRetain(&context, gpu);
}

/// One way for single bytes between processes.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(0, pipe(ends_.data())); }
  void send() const { EXPECT_EQ(1, ::write(ends_[1], "!", 1)); }
  void receive() const {
    char byte = 0;
    EXPECT_EQ(1, ::read(ends_[0], &byte, 1));
  }

 private:
  std::array<int, 2> ends_{};
};

/// The number of the step that went wrong; 0: none.
int second_process(const Pipe& from_first, const Pipe& to_first) {
  ::alarm(120);  // the first one may have failed
  from_first.receive();
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  if (retain(0) != CUDA_ERROR_DEVICE_UNAVAILABLE) return 2;
  CUcontext own = nullptr;
  if (cuCtxCreate(&own, nullptr, 0, 0) != CUDA_ERROR_DEVICE_UNAVAILABLE) return 3;
  if (retain(1) != CUDA_SUCCESS) return 4;
  to_first.send();
  from_first.receive();
  return retain(0) == CUDA_SUCCESS ? 0 : 5;
}

// First, for it has to fork before cuInit.
TEST(Environment, ExclusiveMode_RefusesOtherProcesses) {
  const Pipe to_second;
  const Pipe to_first;
  const pid_t second = fork();
  if (second == 0) _exit(second_process(to_second, to_first));
  ASSERT_CUDA(cuInit(0));
  int mode = 0;
  ASSERT_CUDA(cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
  EXPECT_EQ(CU_COMPUTEMODE_EXCLUSIVE_PROCESS, mode);
  ASSERT_CUDA(retain(0));
  // Several of one process are no matter.
  CUcontext own = nullptr;
  ASSERT_CUDA(cuCtxCreate(&own, nullptr, 0, 0));
  to_second.send();
  to_first.receive();
  EXPECT_CUDA(CUDA_ERROR_DEVICE_UNAVAILABLE, retain(1));
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(0));
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxDestroy(own));
  to_second.send();
  int status = 0;
  ASSERT_EQ(second, waitpid(second, &status, 0));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status));
  // What the other had ended with it.
  EXPECT_CUDA(CUDA_SUCCESS, retain(0));
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(0));
  EXPECT_CUDA(CUDA_SUCCESS, retain(1));
  EXPECT_CUDA(CUDA_SUCCESS, cuDevicePrimaryCtxRelease(1));
}

TEST(Environment, NvmlKnowsTheComputeModeAndTheMemory) {
  ASSERT_EQ(NVML_SUCCESS, nvmlInit_v2());
  nvmlDevice_t device = nullptr;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex_v2(0, &device));
  nvmlComputeMode_t mode = NVML_COMPUTEMODE_DEFAULT;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetComputeMode(device, &mode));
  EXPECT_EQ(NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, mode);
  nvmlMemory_t memory{};
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetMemoryInfo(device, &memory));
  EXPECT_EQ(4 * kGiB, memory.total);
  EXPECT_EQ(kFree, memory.free);
  EXPECT_EQ(3 * kGiB, memory.used);
}

TEST(Environment, ContextTakesMemory) {
  ASSERT_CUDA(cuInit(0));
  CUcontext context = nullptr;
  ASSERT_CUDA(cuCtxCreate(&context, nullptr, 0, 0));
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_CUDA(cuMemGetInfo(&free, &total));
  EXPECT_EQ(4 * kGiB, total);
  EXPECT_LT(free, kFree - 100 * kMiB);
  CUdeviceptr address = 0;
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&address, free + 1));
  ASSERT_CUDA(cuMemAlloc(&address, free - kMiB));
  CUcontext more = nullptr;
  EXPECT_CUDA(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate(&more, nullptr, 0, 0));
  ASSERT_CUDA(cuMemFree(address));
  ASSERT_CUDA(cuCtxDestroy(context));
}

// At least: the node's 1000 us for a context, 250 us for a MiB of pinned memory.
TEST(Environment, CallsThatTakeLong_TakeTheirTime) {
  ASSERT_CUDA(cuInit(0));
  const double begin_us = polypath_sim_clock_us();
  CUcontext context = nullptr;
  ASSERT_CUDA(cuCtxCreate(&context, nullptr, 0, 0));
  const double made_us = polypath_sim_clock_us();
  void* pinned = nullptr;
  ASSERT_CUDA(cuMemHostAlloc(&pinned, 2 * kMiB, 0));
  EXPECT_GE(polypath_sim_clock_us() - made_us, 500);
  EXPECT_GE(made_us - begin_us, 1000);
  ASSERT_CUDA(cuMemFreeHost(pinned));
  ASSERT_CUDA(cuCtxDestroy(context));
}

// POLYPATH_SIM_WITHOUT names these two.
TEST(Environment, FunctionsMayBeAbsent) {
  void* const driver = dlopen("libpolypath_sim.so", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(nullptr, driver) << dlerror();
  for (const char* name : {"cuStreamGetId", "cuCtxGetId", "cuStreamGetCtx"}) {
    const bool is_there = std::string(name) == "cuStreamGetCtx";
    EXPECT_EQ(is_there, dlsym(driver, name) != nullptr) << name;
    void* function = nullptr;
    CUdriverProcAddressQueryResult result{};
    ASSERT_CUDA(cuGetProcAddress(name, &function, 12000, 0, &result));
    EXPECT_EQ(is_there, function != nullptr) << name;
    EXPECT_EQ(is_there ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, result)
        << name;
  }
  dlclose(driver);
}

}  // namespace
}  // namespace polypath::sim::test
