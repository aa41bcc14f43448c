// Kernels that communicate over polypath's backend, as a program has them: launched by a
// Coordinator, with memory of Memory and what toDevice() gives. On GPUs the kernel itself, on
// simulated nodes its host build; rows of calls, every byte compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_kernels_image.hpp"
#include "device_row_rank.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using Backend = uc::PolypathBackend;
using uc::LaunchMode;

/// The kernel, on the GPU of this rank.
class Kernel {
 public:
  explicit Kernel(const Gpu& gpu) : cuda_(gpu.cuda), engine_(uc::detail::engine()) {
    find(load_, "cuModuleLoadData");
    find(unload_, "cuModuleUnload");
    find(function_, "cuModuleGetFunction");
    cuda_.check(load_(&module_, device_kernels_image().data()), "cuModuleLoadData");
    cuda_.check(function_(&kernel_, module_, "uniconn_device_row"), "cuModuleGetFunction");
  }
  ~Kernel() { unload_(module_); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  [[nodiscard]] CUfunc_st* get() const { return kernel_; }

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(polypath_driver_function(engine_.get(), name));
  }
  const uc::detail::Cuda& cuda_;
  std::shared_ptr<polypath_context> engine_;
  int (*load_)(void**, const void*) = nullptr;
  int (*unload_)(void*) = nullptr;
  int (*function_)(CUfunc_st**, void*, const char*) = nullptr;
  void* module_ = nullptr;
  CUfunc_st* kernel_ = nullptr;
};

DeviceRowOptions options_of(int ranks) {
  DeviceRowOptions options;
  options.ranks = ranks;
  options.has_all_sums = false;
  options.tells = false;
  return options;
}

class UniconnDevice : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (gpus() < GetParam()) GTEST_SKIP() << "needs " << GetParam() << " GPUs";
  }
};

TEST_P(UniconnDevice, KernelsMoveWhatTheySay) {
  const auto body = [](SuiteRank<Backend>& self) {
    const Kernel kernel(self.gpu);
    // As in Listing 4: before there is memory.
    void* const on_device = self.comm.toDevice();
    SUITE_EXPECT(on_device != nullptr && on_device == self.comm.toDevice(), "");
    DeviceRandom random(7);
    DeviceRowOptions options = options_of(self.size());
    for (int i = 0; i < 6; ++i) {
      options.max_bytes = i == 5 ? 300'000 : 16 * 1024;
      make_row(make_device_row(random, options), self.gpu, kernel.get(), self.comm, on_device);
    }
  };
  EXPECT_THAT(on_ranks<Backend>(GetParam(), body), Each(""));
}

/// Ranks of a part have other numbers than in the world, and memories are the world's.
TEST_P(UniconnDevice, PartsCommunicateByThemselves) {
  const auto body = [](SuiteRank<Backend>& self) {
    const Kernel kernel(self.gpu);
    auto* const before = uc::Memory<Backend>::Alloc<double>(100);
    uc::Communicator<Backend> part = self.comm.Split(self.rank() % 2, -self.rank());
    void* const on_device = part.toDevice();
    DeviceRandom random(static_cast<std::uint64_t>(11));
    // Alike on both parts when there are equally many ranks in them.
    for (int i = 0; i < 3; ++i)
      make_row(make_device_row(random, options_of(part.GlobalSize())), self.gpu, kernel.get(), part,
               on_device);
    uc::Memory<Backend>::Free(before);
  };
  EXPECT_THAT(on_ranks<Backend>(GetParam(), body), Each(""));
}
INSTANTIATE_TEST_SUITE_P(On, UniconnDevice, testing::Values(2, 4), [](const auto& test_info) {
  return std::to_string(test_info.param) + "Ranks";
});

/// PartialDevice: the kernel sends, and the host tells after it.
TEST(UniconnDeviceModes, PartialDeviceIsToldByTheHost) {
  if (gpus() < 2) GTEST_SKIP();
  EXPECT_THAT(
      on_ranks<Backend>(
          2, [](SuiteRank<Backend>& self) { send_by_kernels(self, Kernel(self.gpu).get()); }),
      Each(""));
}

/// The kernel of rank 0 waits for a rank that is gone.
TEST(UniconnDeviceModes, KernelWaitForGoneRank_TimesOut) {
  if (gpus() < 2) GTEST_SKIP();
  setenv("POLYPATH_COMM_TIMEOUT_MS", "10000", 1);  // of the creation too, on a busy machine
  const auto failures = on_ranks<Backend>(2, [](SuiteRank<Backend>& self) {
    const Kernel kernel(self.gpu);
    void* on_device = self.comm.toDevice();
    auto* const word = uc::Memory<Backend>::Alloc<std::uint64_t>(1);
    if (self.rank() == 1) throw std::runtime_error("it is gone");
    const Own calls(self.gpu, sizeof(DeviceCall));
    DeviceCall call = one_call(DeviceOp::acknowledge);
    call.signal = word;
    call.value = 5;
    call.root = 1;
    Bytes bytes(sizeof call);
    std::memcpy(bytes.data(), &call, sizeof call);
    self.gpu.write(calls.get(), bytes);
    DeviceRow row{on_device, static_cast<const DeviceCall*>(calls.get()), 1};
    void* arguments[] = {&row};
    uc::Coordinator<Backend, LaunchMode::PureDevice> step(self.gpu.stream);
    step.BindKernel<LaunchMode::PureDevice>(kernel.get(), 1, 32, 0, arguments);
    step.LaunchKernel();
    step.WaitComm();
  });
  unsetenv("POLYPATH_COMM_TIMEOUT_MS");
  EXPECT_THAT(failures[0], HasSubstr("block 0 of a kernel of the program waited for rank 1 past"));
  EXPECT_THAT(failures[1], HasSubstr("it is gone"));
}

}  // namespace
}  // namespace polypath::test
