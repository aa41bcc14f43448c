// Kernels that communicate over a backend, on GPUs: one rank, that is built with the backend's
// device header (device_kernels.cu) and started alone or by a launcher. All three launch modes,
// every byte compared; rows of calls in all groups. The exit code is 1 when something is wrong.
// Then ranks 0 and 1 say, as JSON lines, how long a Post by one block takes from kernel to kernel.
//
//   torchrun --no-python --nproc-per-node N build/release/bin/uniconn_device_gpushmem [ROWS]
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device_kernels.cu"
#include "device_row_rank.hpp"

namespace polypath::test {

/// A message to and fro between ranks 0 and 1, `turns` times; what that took, in `took_ns`.
struct ToAndFro {
  const unsigned char* sent;
  unsigned char* received;
  std::uint64_t bytes;
  std::uint64_t* word;
  std::uint64_t turns;
  std::uint64_t* took_ns;
  void* comm;
};
constexpr int kToAndFroThreads = 512;

}  // namespace polypath::test

extern "C" __global__ void __launch_bounds__(polypath::test::kToAndFroThreads)
    uniconn_to_and_fro(polypath::test::ToAndFro args) {
  using namespace polypath::test;
  using It = uc::Coordinator<DeviceBackend>;
  constexpr auto kBlock = uc::ThreadGroup::BLOCK;
  constexpr std::uint64_t kWarmup = 20;
  auto* const comm = static_cast<uc::Communicator<DeviceBackend>*>(args.comm);
  const int own = It::Rank(comm);
  if (own > 1) return;
  std::uint64_t began = 0;
  for (std::uint64_t turn = 1; turn <= args.turns + kWarmup; ++turn) {
    if (turn == kWarmup + 1) began = polypath::simt::global_timer_ns();
    if (own == 0) It::Post<kBlock>(args.sent, args.received, args.bytes, args.word, turn, 1, comm);
    It::Acknowledge<kBlock>(args.received, args.bytes, args.word, turn, 1 - own, comm);
    if (own == 1) It::Post<kBlock>(args.sent, args.received, args.bytes, args.word, turn, 0, comm);
  }
  if (threadIdx.x == 0) *args.took_ns = polypath::simt::global_timer_ns() - began;
}

namespace polypath::test {
namespace {

using Rank = SuiteRank<DeviceBackend>;

/// PureHost, in a program with device code: the library is the same.
void send_by_host(Rank& self) {
  const int next = (self.rank() + 1) % self.size();
  const int last = (self.rank() + self.size() - 1) % self.size();
  constexpr std::size_t kBytes = 100'000;
  Buffer<DeviceBackend> source(self.gpu, kBytes);
  Buffer<DeviceBackend> inbox(self.gpu, kBytes);
  Buffer<DeviceBackend> words(self.gpu, 8);
  words.put(0, Bytes(8));
  source.put(0, self.content(self.rank(), 1, kBytes));
  self.comm.Barrier(self.gpu.stream);
  uc::Coordinator<DeviceBackend> step(self.gpu.stream);
  auto* const word = words.get<std::uint64_t>();
  step.CommStart();
  step.Post(source.get(), inbox.get(), kBytes, word, 1, next, &self.comm);
  step.Acknowledge(inbox.get(), kBytes, word, 1, last, &self.comm);
  step.CommEnd();
  step.WaitComm();
  inbox.note(0, self.content(last, 1, kBytes));
  inbox.expect_image("PureHost");
}

void say_how_long(Rank& self, void* on_device, std::size_t bytes) {
  constexpr std::uint64_t kTurns = 1000;
  Buffer<DeviceBackend> source(self.gpu, bytes);
  Buffer<DeviceBackend> inbox(self.gpu, bytes);
  Buffer<DeviceBackend> words(self.gpu, 8);
  const Own took(self.gpu, sizeof(std::uint64_t));
  words.put(0, Bytes(8));
  source.put(0, self.content(self.rank(), bytes, bytes));
  ToAndFro parameter{reinterpret_cast<const unsigned char*>(source.get()),
                     reinterpret_cast<unsigned char*>(inbox.get()),
                     bytes,
                     words.get<std::uint64_t>(),
                     kTurns,
                     static_cast<std::uint64_t*>(took.get()),
                     on_device};
  void* arguments[] = {&parameter};
  uc::Coordinator<DeviceBackend, uc::LaunchMode::PureDevice> calls(self.gpu.stream);
  calls.BindKernel<uc::LaunchMode::PureHost>(&uniconn_to_and_fro, 1, 32, 0, nullptr);
  calls.BindKernel<uc::LaunchMode::PureDevice>(&uniconn_to_and_fro, 1U, unsigned{kToAndFroThreads},
                                               0, arguments);
  self.comm.Barrier(self.gpu.stream);
  calls.LaunchKernel();
  calls.WaitComm();
  self.comm.Barrier(self.gpu.stream);
  calls.WaitComm();
  if (self.rank() < 2) inbox.note(0, self.content(1 - self.rank(), bytes, bytes));
  inbox.expect_image("to and fro");
  if (self.rank() != 0) return;
  const auto read = self.gpu.read(took.get(), sizeof(std::uint64_t));
  std::uint64_t ns = 0;
  std::memcpy(&ns, read.data(), sizeof ns);
  std::printf(
      "{\"test\": \"device post, block\", \"backend\": \"%s\", \"bytes\": %zu, \"us\": %.3f}\n",
      self.env.BackendName().c_str(), bytes, static_cast<double>(ns) / 1e3 / (2 * kTurns));
}

void run(int rows) {
  uc::Environment<DeviceBackend> env;
  env.SetDevice(env.NodeRank());
  const Gpu gpu;
  uc::Communicator<DeviceBackend> comm;
  Rank self{env, comm, gpu};
  send_by_host(self);
  void* const on_device = comm.toDevice();
  send_by_kernels(self, &uniconn_device_row);
  DeviceRowOptions options;
  options.ranks = self.size();
  options.has_all_sums = false;
  options.sums_in_any_order = true;
  options.tells = false;
  DeviceRandom random(7);
  std::size_t calls = 0;
  for (int i = 0; i < rows; ++i) {
    options.max_bytes = i % 4 == 3 ? 300'000 : 16 * 1024;
    const DeviceRowCase row = make_device_row(random, options);
    calls += row.calls[0].size();
    make_row(row, gpu, &uniconn_device_row, comm, on_device);
  }
  if (self.rank() == 0)
    std::printf(
        "%s, %d ranks: PureHost, PartialDevice, and %zu calls in %d rows of PureDevice: ok\n",
        env.BackendName().c_str(), self.size(), calls, rows);
  if (self.size() < 2) return;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{65536}, std::size_t{1} << 20})
    say_how_long(self, on_device, bytes);
}

}  // namespace
}  // namespace polypath::test

int main(int argc, char** argv) {
  try {
    polypath::test::run(argc > 1 ? std::atoi(argv[1]) : 40);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
