// The suite over NCCL's host API, which a small library stands in for, on the simulated driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "polypath/uniconn/backend/gpuccl.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using Backend = uc::GpucclBackend;
using Parameter = std::tuple<SuiteCase<Backend>, int>;

class UniconnGpuccl : public testing::TestWithParam<Parameter> {};
TEST_P(UniconnGpuccl, Case) {
  const auto& [suite_case, ranks] = GetParam();
  if (gpus() < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  EXPECT_THAT(on_ranks<Backend>(ranks, [&](SuiteRank<Backend>& self) { suite_case.run(self); }),
              Each(""));
}
INSTANTIATE_TEST_SUITE_P(Gpuccl, UniconnGpuccl,
                         testing::Combine(testing::ValuesIn(suite<Backend>()),
                                          testing::Values(2, 4)),
                         [](const auto& test_info) {
                           return std::string(std::get<0>(test_info.param).name) + "On" +
                                  std::to_string(std::get<1>(test_info.param));
                         });

/// As a program with device/gpuccl.cuh has it.
struct OfProgram {
  static inline constexpr uc::detail::NcclProgramSymbols structures{
      22809, 8, 8, nullptr, nullptr, nullptr, nullptr};
  OfProgram() { uc::detail::nccl_of_program = &structures; }
  ~OfProgram() { uc::detail::nccl_of_program = nullptr; }
};

TEST(UniconnGpucclKernels, NeedTheDeviceHeader) {
  if (gpus() < 2) GTEST_SKIP();
  const auto body = [](SuiteRank<Backend>& self) {
    const std::string text = refusal(POLYPATH_NOT_SUPPORTED, "toDevice",
                                     [&] { static_cast<void>(self.comm.toDevice()); });
    SUITE_EXPECT(text.find("device/gpuccl.cuh") != std::string::npos, text);
    refusal(POLYPATH_NOT_SUPPORTED, "PureDevice", [&] {
      const uc::Coordinator<Backend, uc::LaunchMode::PureDevice> coordinator(self.gpu.stream);
    });
  };
  EXPECT_THAT(on_ranks<Backend>(2, body), Each(""));
}

/// An NCCL without windows serves the host all the same; toDevice() says what it lacks. Of what a
/// kernel has sent the host tells after it.
TEST(UniconnGpucclKernels, HostSignalsKernelData) {
  if (gpus() < 2) GTEST_SKIP();
  const OfProgram of_program;
  std::array<std::byte*, 2> inboxes{};
  const auto body = [&](SuiteRank<Backend>& self) {
    const std::string text = refusal(POLYPATH_NOT_SUPPORTED, "toDevice",
                                     [&] { static_cast<void>(self.comm.toDevice()); });
    SUITE_EXPECT(text.find("2.28 or newer is wanted") != std::string::npos, text);
    constexpr std::size_t kBytes = 8 * 5000;
    Buffer<Backend> source(self.gpu, kBytes);
    Buffer<Backend> inbox(self.gpu, kBytes);
    const int next = 1 - self.rank();
    inboxes[static_cast<std::size_t>(self.rank())] = inbox.get();
    uc::Coordinator<Backend, uc::LaunchMode::PartialDevice> step(self.gpu.stream);
    step.BindKernel<uc::LaunchMode::PartialDevice>([&](uc::Stream stream) {
      self.gpu.cuda.check(
          self.gpu.cuda.copy(uc::detail::device(inboxes[static_cast<std::size_t>(next)]),
                             uc::detail::device(source.get()), kBytes, stream),
          "cuMemcpyAsync");
    });
    for (std::uint64_t round = 1; round <= 3; ++round) {
      inbox.poison();
      source.put(0, self.content(self.rank(), round, kBytes));
      self.comm.Barrier(self.gpu.stream);
      step.WaitComm();
      step.LaunchKernel();
      step.CommStart();
      step.Post(source.get(), inbox.get(), kBytes, nullptr, round, next, &self.comm);
      step.Acknowledge(inbox.get(), kBytes, nullptr, round, next, &self.comm);
      step.CommEnd();
      step.WaitComm();
      inbox.note(0, self.content(next, round, kBytes));
      inbox.expect_image("PartialDevice");
      self.comm.Barrier(self.gpu.stream);
      step.WaitComm();
    }
  };
  EXPECT_THAT(on_ranks<Backend>(2, body), Each(""));
}

}  // namespace
}  // namespace polypath::test
