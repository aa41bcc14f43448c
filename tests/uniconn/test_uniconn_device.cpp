// Kernels that communicate over polypath's backend, as a program has them: launched by a
// Coordinator, with memory of Memory and what toDevice() gives. On GPUs the kernel itself, on
// simulated nodes its twin; rows of calls, every byte compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device_case.hpp"
#include "device_row_image.hpp"
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
    cuda_.check(load_(&module_, device_row_image().data()), "cuModuleLoadData");
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

/// Memory of this rank's GPU alone.
class Own {
 public:
  Own(const Gpu& gpu, std::size_t bytes) : gpu_(gpu) {
    gpu.cuda.check(gpu.cuda.alloc(&at_, bytes), "cuMemAlloc");
  }
  ~Own() { gpu_.cuda.free(at_); }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  [[nodiscard]] std::uint64_t address() const { return at_; }
  [[nodiscard]] void* get() const { return reinterpret_cast<void*>(at_); }

 private:
  const Gpu& gpu_;
  uc::detail::DevicePointer at_ = 0;
};

/// Makes the row on all ranks of `comm`; throws where a byte is wrong.
void make_row(const DeviceRowCase& row, const Gpu& gpu, const Kernel& kernel,
              uc::Communicator<Backend>& comm, void* on_device) {
  const auto own = static_cast<std::size_t>(comm.GlobalRank());
  std::array<std::byte*, kDevicePieces> pieces{};
  std::array<std::uint64_t, kDevicePieces> addresses{};
  for (std::size_t i = 0; i < kDevicePieces; ++i) {
    pieces[i] = uc::Memory<Backend>::Alloc<std::byte>(row.before[own][i].size());
    addresses[i] = reinterpret_cast<std::uint64_t>(pieces[i]);
    gpu.write(pieces[i], row.before[own][i]);
  }
  const int rank = comm.GlobalRank();
  const DeviceBytes first = pack(row, rank, 0, addresses, {});
  const Own packed(gpu, first.size());
  gpu.write(packed.get(), pack(row, rank, packed.address(), addresses, {}));
  DeviceRow parameter{on_device, static_cast<const DeviceCall*>(packed.get()),
                      row.calls[own].size()};
  void* arguments[] = {&parameter};
  uc::Coordinator<Backend, LaunchMode::PureDevice> coordinator(gpu.stream);
  coordinator.BindKernel<LaunchMode::PureHost>(kernel.get(), 1, 32, 0, nullptr);
  coordinator.BindKernel<LaunchMode::PureDevice>(kernel.get(), row.blocks, 64U, 0, arguments);
  comm.Barrier(gpu.stream);
  coordinator.LaunchKernel();
  coordinator.WaitComm();
  comm.Barrier(gpu.stream);
  coordinator.WaitComm();
  std::array<DeviceBytes, kDevicePieces> found;
  for (std::size_t i = 0; i < kDevicePieces; ++i)
    found[i] = gpu.read(pieces[i], row.before[own][i].size());
  const std::string wrong = wrong_bytes(row, rank, gpu.read(packed.get(), first.size()), found);
  SUITE_EXPECT(wrong.empty(), wrong);
  for (std::byte* const piece : pieces) uc::Memory<Backend>::Free(piece);
}

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
      options.most_bytes = i == 5 ? 300'000 : 16 * 1024;
      make_row(make_device_row(random, options), self.gpu, kernel, self.comm, on_device);
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
      make_row(make_device_row(random, options_of(part.GlobalSize())), self.gpu, kernel, part,
               on_device);
    uc::Memory<Backend>::Free(before);
  };
  EXPECT_THAT(on_ranks<Backend>(GetParam(), body), Each(""));
}
INSTANTIATE_TEST_SUITE_P(On, UniconnDevice, testing::Values(2, 4),
                         [](const auto& of) { return std::to_string(of.param) + "Ranks"; });

DeviceCall one_call(DeviceOp op) {
  DeviceCall call{};
  call.op = op;
  call.group = static_cast<std::uint32_t>(uc::ThreadGroup::BLOCK);
  call.element_bytes = 8;
  return call;
}

/// PartialDevice: the kernel sends, and the host tells behind it.
TEST(UniconnDeviceModes, PartialDeviceIsToldByTheHost) {
  if (gpus() < 2) GTEST_SKIP();
  const auto body = [](SuiteRank<Backend>& self) {
    const Kernel kernel(self.gpu);
    void* on_device = self.comm.toDevice();
    const int next = (self.rank() + 1) % self.size();
    const int last = (self.rank() + self.size() - 1) % self.size();
    constexpr std::size_t kBytes = 8 * 5000;
    Buffer<Backend> source(self.gpu, kBytes);
    Buffer<Backend> inbox(self.gpu, kBytes);
    Buffer<Backend> words(self.gpu, 8);
    words.put(0, Bytes(8));
    uc::Coordinator<Backend, LaunchMode::PartialDevice> step(self.gpu.stream);
    const Own calls(self.gpu, sizeof(DeviceCall));
    DeviceCall call = one_call(DeviceOp::post_quietly);
    call.send = source.get();
    call.recv = inbox.get();
    call.count = kBytes / 8;
    call.root = next;
    Bytes bytes(sizeof call);
    std::memcpy(bytes.data(), &call, sizeof call);
    self.gpu.write(calls.get(), bytes);
    DeviceRow row{on_device, static_cast<const DeviceCall*>(calls.get()), 1};
    void* arguments[] = {&row};
    step.BindKernel<LaunchMode::PartialDevice>(kernel.get(), 1, 96, 0, arguments);
    auto* const word = words.get<std::uint64_t>();
    for (std::uint64_t round = 1; round <= 3; ++round) {
      inbox.poison();
      source.put(0, self.content(self.rank(), round, kBytes));
      self.comm.Barrier(self.gpu.stream);
      step.LaunchKernel();
      step.CommStart();
      step.Post(source.get(), inbox.get(), kBytes, word, round, next, &self.comm);
      step.Acknowledge(inbox.get(), kBytes, word, round, last, &self.comm);
      step.CommEnd();
      step.WaitComm();
      inbox.note(0, self.content(last, round, kBytes));
      inbox.expect_image("PartialDevice, round " + std::to_string(round));
      self.comm.Barrier(self.gpu.stream);
      step.WaitComm();
    }
  };
  EXPECT_THAT(on_ranks<Backend>(2, body), Each(""));
}

/// The kernel of rank 0 waits for a rank that is gone.
TEST(UniconnDeviceModes, AKernelThatWaitsForNobodyEndsWithTheTimeLimit) {
  if (gpus() < 2) GTEST_SKIP();
  setenv("POLYPATH_COMM_TIME_LIMIT", "4000", 1);
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
  unsetenv("POLYPATH_COMM_TIME_LIMIT");
  EXPECT_THAT(failures[0], HasSubstr("block 0 of a kernel of the program waited for rank 1 past"));
  EXPECT_THAT(failures[1], HasSubstr("it is gone"));
}

}  // namespace
}  // namespace polypath::test
