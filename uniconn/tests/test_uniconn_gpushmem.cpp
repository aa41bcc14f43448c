// The suite over NVSHMEM's host API, which a small library stands in for, on the simulated driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "polypath/uniconn/backend/gpushmem.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using Backend = uc::GpushmemBackend;
using Parameter = std::tuple<SuiteCase<Backend>, int>;

class UniconnGpushmem : public testing::TestWithParam<Parameter> {};
TEST_P(UniconnGpushmem, Case) {
  const auto& [suite_case, ranks] = GetParam();
  if (gpus() < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  EXPECT_THAT(on_ranks<Backend>(ranks, [&](SuiteRank<Backend>& self) { suite_case.run(self); }),
              Each(""));
}
INSTANTIATE_TEST_SUITE_P(Gpushmem, UniconnGpushmem,
                         testing::Combine(testing::ValuesIn(suite<Backend>()),
                                          testing::Values(2, 4)),
                         [](const auto& test_info) {
                           return std::string(std::get<0>(test_info.param).name) + "On" +
                                  std::to_string(std::get<1>(test_info.param));
                         });

/// What a program with device/gpushmem.cuh has: here the host library's own functions, counted.
struct OfProgram {
  static inline std::atomic<int> begun = 0;
  static inline std::atomic<int> ended = 0;
  static inline std::array<unsigned, 6> launched{};
  static inline constexpr uc::detail::NvshmemProgramSymbols functions{
      [](unsigned flags, void* attributes) {
        ++begun;
        return uc::detail::Nvshmem::get().init(
            flags, static_cast<uc::detail::Nvshmem::Attributes*>(attributes));
      },
      [] {
        ++ended;
        uc::detail::Nvshmem::get().finalize();
      },
      [](const void* kernel, const unsigned* grid, const unsigned* block, void**, std::size_t,
         CUstream_st*) {
        launched = {grid[0], grid[1], grid[2], block[0], block[1], block[2]};
        return kernel == nullptr ? 7 : 0;
      }};
  OfProgram() { uc::detail::nvshmem_of_program = &functions; }
  ~OfProgram() { uc::detail::nvshmem_of_program = nullptr; }
};

TEST(UniconnGpushmemKernels, NeedTheDeviceHeaderAndItsLibrary) {
  if (gpus() < 2) GTEST_SKIP();
  const auto body = [](SuiteRank<Backend>& self) {
    const std::string toDevice = refusal(POLYPATH_NOT_SUPPORTED, "toDevice",
                                         [&] { static_cast<void>(self.comm.toDevice()); });
    const std::string mode = refusal(POLYPATH_NOT_SUPPORTED, "PureDevice", [&] {
      const uc::Coordinator<Backend, uc::LaunchMode::PureDevice> coordinator(self.gpu.stream);
    });
    for (const std::string& text : {toDevice, mode})
      SUITE_EXPECT(text.find("device/gpushmem.cuh") != std::string::npos &&
                       text.find("-lnvshmem_device") != std::string::npos,
                   text);
  };
  EXPECT_THAT(on_ranks<Backend>(2, body), Each(""));
}

/// The program's own part of NVSHMEM begins with it, and launches; a kernel's data goes before the
/// signal that tells of it.
TEST(UniconnGpushmemKernels, LaunchThroughTheProgramsNvshmem) {
  if (gpus() < 2) GTEST_SKIP();
  const OfProgram of_program;
  const auto body = [](SuiteRank<Backend>& self) {
    void* const on_device = self.comm.toDevice();
    SUITE_EXPECT(on_device != nullptr && on_device == self.comm.toDevice(), "");
    uc::Communicator<Backend> same = self.comm.Split(0, self.rank());
    SUITE_EXPECT(same.toDevice() == on_device, "");
    uc::Communicator<Backend> turned = self.comm.Split(0, -self.rank());
    const std::string text =
        refusal(POLYPATH_NOT_SUPPORTED, "toDevice", [&] { static_cast<void>(turned.toDevice()); });
    SUITE_EXPECT(text.find("not among a part") != std::string::npos, text);

    constexpr std::size_t kBytes = 8 * 5000;
    Buffer<Backend> source(self.gpu, kBytes);
    Buffer<Backend> inbox(self.gpu, kBytes);
    Buffer<Backend> words(self.gpu, 8);
    words.put(0, Bytes(8));
    const int next = 1 - self.rank();
    uc::Coordinator<Backend, uc::LaunchMode::PartialDevice> step(self.gpu.stream);
    step.BindKernel<uc::LaunchMode::PartialDevice>([&](uc::Stream stream) {
      uc::detail::Nvshmem::get().put(inbox.get(), source.get(), kBytes, next, stream);
    });
    auto* const word = words.get<std::uint64_t>();
    for (std::uint64_t round = 1; round <= 3; ++round) {
      inbox.poison();
      source.put(0, self.content(self.rank(), round, kBytes));
      self.comm.Barrier(self.gpu.stream);
      step.LaunchKernel();
      step.CommStart();
      step.Post(source.get(), inbox.get(), kBytes, word, round, next, &self.comm);
      step.Acknowledge(inbox.get(), kBytes, word, round, next, &self.comm);
      step.CommEnd();
      step.WaitComm();
      inbox.note(0, self.content(next, round, kBytes));
      inbox.expect_image("PartialDevice");
      self.comm.Barrier(self.gpu.stream);
      step.WaitComm();
    }
  };
  EXPECT_THAT(on_ranks<Backend>(2, body), Each(""));
  EXPECT_EQ(2, OfProgram::begun);
  EXPECT_EQ(2, OfProgram::ended);
  Backend::World::launch_together(&of_program, {1, 2, 3}, {4, 5, 6}, nullptr, 0, nullptr);
  EXPECT_THAT(OfProgram::launched, testing::ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THROW(Backend::World::launch_together(nullptr, {}, {}, nullptr, 0, nullptr),
               uc::backend_error);
}

}  // namespace
}  // namespace polypath::test
