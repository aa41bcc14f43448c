// A rank that launches the kernel of device_kernels.cu, and sees that every byte came.
#pragma once

#include "device_case.hpp"
#include "suite_rank.hpp"

namespace polypath::test {

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

/// Makes the row on all ranks of `comm`; throws where a byte is wrong. `kernel` as BindKernel takes
/// it.
template <typename Backend, typename Kernel>
void make_row(const DeviceRowCase& row, const Gpu& gpu, Kernel kernel,
              uc::Communicator<Backend>& comm, void* on_device) {
  const auto own = static_cast<std::size_t>(comm.GlobalRank());
  std::array<std::byte*, kDevicePieces> pieces{};
  std::array<std::uint64_t, kDevicePieces> addresses{};
  for (std::size_t i = 0; i < kDevicePieces; ++i) {
    pieces[i] = uc::Memory<Backend>::template Alloc<std::byte>(row.before[own][i].size());
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
  uc::Coordinator<Backend, uc::LaunchMode::PureDevice> coordinator(gpu.stream);
  coordinator.template BindKernel<uc::LaunchMode::PureHost>(kernel, 1, 32, 0, nullptr);
  coordinator.template BindKernel<uc::LaunchMode::PureDevice>(kernel, row.blocks, 64U, 0,
                                                              arguments);
  comm.Barrier(gpu.stream);
  coordinator.LaunchKernel();
  coordinator.WaitComm();
  comm.Barrier(gpu.stream);
  coordinator.WaitComm();
  std::array<DeviceBytes, kDevicePieces> actual;
  for (std::size_t i = 0; i < kDevicePieces; ++i)
    actual[i] = gpu.read(pieces[i], row.before[own][i].size());
  const std::string wrong = wrong_bytes(row, rank, gpu.read(packed.get(), first.size()), actual);
  SUITE_EXPECT(wrong.empty(), wrong);
  for (std::byte* const piece : pieces) uc::Memory<Backend>::Free(piece);
}

inline DeviceCall one_call(DeviceOp op) {
  DeviceCall call{};
  call.op = op;
  call.group = static_cast<std::uint32_t>(uc::ThreadGroup::BLOCK);
  call.element_bytes = 8;
  return call;
}

/// PartialDevice: the kernel sends to the next rank, and the host tells after it.
template <typename Backend, typename Kernel>
void send_by_kernels(SuiteRank<Backend>& self, Kernel kernel) {
  void* on_device = self.comm.toDevice();
  const int next = (self.rank() + 1) % self.size();
  const int last = (self.rank() + self.size() - 1) % self.size();
  constexpr std::size_t kBytes = 8 * 5000;
  Buffer<Backend> source(self.gpu, kBytes);
  Buffer<Backend> inbox(self.gpu, kBytes);
  Buffer<Backend> words(self.gpu, 8);
  words.put(0, Bytes(8));
  uc::Coordinator<Backend, uc::LaunchMode::PartialDevice> step(self.gpu.stream);
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
  step.template BindKernel<uc::LaunchMode::PartialDevice>(kernel, 1, 96, 0, arguments);
  auto* const word = words.template get<std::uint64_t>();
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
}

}  // namespace polypath::test
